"""Generative recommendation with grounded semantic-ID tokens (GTI, arXiv 2604.02324)."""

import os

__version__ = "0.1.0"

# OpenMP's threads spin while they wait, and on cores that another process also uses each wait then costs a whole time
# slice: measured five to thirteen times slower with one neighbour on two cores. Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
