"""`python -m turnwheel.apps.cli` is `turnwheel`."""

import sys

from . import main

sys.exit(main())
