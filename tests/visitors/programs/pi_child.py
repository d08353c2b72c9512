"""A share of π for the program that spawned this one: gets n, sends back the part."""

from mpi4py import MPI

parent = MPI.Comm.Get_parent()
n = parent.bcast(None, root=0)
part = sum(4 / (1 + ((i + 0.5) / n) ** 2) for i in range(parent.rank, n, parent.size)) / n
parent.reduce(part, root=0)
parent.Disconnect()
