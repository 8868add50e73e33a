"""`python -m gti_pipeline` is `gti`."""

from gti_pipeline.cli import main

main()
