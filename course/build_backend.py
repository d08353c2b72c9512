"""The build backend that pip and uv call: setuptools, whose editable installations have data files
(ipython_config.py), too.

setuptools 80 means to install them, but it asks its Distribution for `has_data`, and the method is
called `has_data_files`.
"""

from setuptools import Distribution
from setuptools.build_meta import *  # noqa: F403

Distribution.has_data = Distribution.has_data_files
