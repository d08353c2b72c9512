"""The build backend that pip and uv call: setuptools, with data files (ipython_config.py) in editable installations, too.

setuptools 80 means to install them, but asks its Distribution for `has_data`, and the method is called `has_data_files`.
"""

from setuptools import Distribution
from setuptools.build_meta import *  # noqa: F403

Distribution.has_data = Distribution.has_data_files
