"""Why a notebook cannot run on this machine: tools that run notebooks skip it and say so."""

import os

import r

ON_HOSTS = "PI2ZERO_HOSTS" in os.environ  # set by tools/hosts.py for what runs amid two hosts


def why_not(book):
    """In words; empty if it can run. book: nbformat's; its metadata may have needs: "two hosts"."""
    if book.metadata.get("needs") == "two hosts" and not ON_HOSTS:
        return "it needs two hosts. `make cluster-test` runs it, `make two-hosts` opens it"
    return r.why_not(book)
