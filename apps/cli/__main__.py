"""Lets `python -m turnwheel.apps.cli` run the command line."""

import sys

from . import main

sys.exit(main())
