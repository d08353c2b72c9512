"""Put on PYTHONPATH by tools/check.py: each of the checks' thousands of Pythons ends without a last look for garbage.

What torch's import makes is looked through at the end several times, and is then freed by the system anyway. Frozen, it is passed
over: importing torch and ending costs 1.0 s of the processor instead of 1.4, transformers' T5 3.0 instead of 4.1. Nothing changes
while a program runs. Registered first, so called last.
"""

import atexit
import gc

atexit.register(gc.freeze)
