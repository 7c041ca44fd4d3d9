"""The lines that TensorFlow writes in every job and that report nothing."""

from __future__ import annotations

import re

_NOISE = re.compile(
    rb"""(?mx)
    # The options of a server: lines up to an empty one.
    ^I\d{4}\ [^\]\n]*\.cc:\d+\]\ SessionOptions:.*\n(?:[\w ]+[:{].*\n|\ *\}\n)*\n?
  | ^(?:
        WARNING:\ All\ log\ messages\ before\ absl::InitializeLog
      | To\ enable\ the\ following\ instructions:.*rebuild\ TensorFlow
      | I\d{4}\ [^\]\n]*\.(?:cc|h):\d+\]                              # absl's information
      | \d{4}-\d\d-\d\d\ [\d:.]+:\ I\ [^\]\n]*\.(?:cc|h):\d+\]        # TensorFlow's
      | (?:[WE]\d{4}\ |\d{4}-\d\d-\d\d\ [\d:.]+:\ [WE]\ )[^\]\n]*\.(?:cc|h):\d+\]\ .*(?:
            already\ (?:been\ )?registered                      # CUDA's plugins, twice
          | Could\ not\ find\ (?:cuda\ drivers|TensorRT)        # no GPU here
          | failed\ call\ to\ cuInit:.*(?:CUDA_ERROR_NO_DEVICE|UNKNOWN\ ERROR\ \(303\))
          | Skipping\ registering\ GPU\ devices
          | End\ of\ sequence                                   # a data set's own end
          | GeneratorDatasetOp::Dataset\ will\ not\ be\ optimized  # several devices
          | Device\ filters\ can\ only\ be\ specified               # a lost worker
          | oneDNN\ supports\ DT_INT\d+\ only                    # CPUs
          | Not\ handling\ type\ DT_DOUBLE                       # float64
        )
        # An error on its way up through TensorFlow: Python reports it when it arrives.
      | [WE]\d{4}\ [^\]\n]*(?:context|local_rendezvous|ring_alg|base_collective_executor
                              |generator_dataset_op|op_kernel)\.cc:\d+\]
      | \t\ \[\[ | \ \[\[\{\{
      | Additional\ GRPC\ error\ information\ from\ remote\ target
      | :UNKNOWN:Error\ received\ from\ peer
      | The\ error\ could\ be\ from\ a\ previous\ operation
      | This\ could\ happen\ if\ the\ remote\ target\ has\ been\ disconnected
      | The\ tasks\ have\ crashed\.\ Check\ the\ task\ logs
      | /job:\w+/replica:\d+/task:\d+$                       # a straggler, under its heading
    ).*\n
    # Of --check-numerics, which the trainer reports in one line.
  | ^\n?!!!\ Detected\ Infinity\ or\ NaN(?:.*\n)*?\ :\ Tensor\ had.*\n
    # Of Python code that TensorFlow called: the blank line is in no other traceback.
  | ^Traceback\ \(most\ recent\ call\ last\):\n\n(?:\ .*\n|\n)+\S.*\n+
    """
)


def text_without_noise(text: str) -> str:
    """Return a text without the lines that TensorFlow writes in every job."""
    block = f"{text}\n".encode("utf-8", "surrogatepass")
    return without_noise(block).decode("utf-8", "surrogatepass").removesuffix("\n")


def without_noise(block: bytes) -> bytes:
    """Return whole lines without those that TensorFlow writes in every job."""
    return _NOISE.sub(b"", block)
