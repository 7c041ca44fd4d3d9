"""Which replica reads which example at which step, and the pipeline that reads them so."""
