"""A set of MPI ranks that a notebook starts, runs cells on, watches, mends and stops. It knows no torch."""
