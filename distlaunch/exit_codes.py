"""Exit codes of `distlaunch`."""

EXIT_ERROR = 1  # refused or failed, with a message
EXIT_USAGE = 2
EXIT_JOB_FAILED = 3  # the cloud job ended without success
EXIT_INTERRUPTED = 130
