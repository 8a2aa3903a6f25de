"""`python -m bubblescope`."""

from bubblescope.cli import main

main()
