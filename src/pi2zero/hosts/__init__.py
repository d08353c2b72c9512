"""Where ranks run, and what is done on each host: this machine, others by ssh, the nodes of a Slurm job.

place.py    the hosts and their slots, how a line of sh gets there, and which network they share
site.py     the site file: an instructor's answer to "where?", for all notebooks
slurm.py    a job that holds nodes: asked for, waited for, told why it ended, cancelled; in_job.py runs a line on one of them
reach.py    the kernel's side: it asks this host directly, another through its agent, agent.py; every.py asks all of them
seal.py     no stranger connects to what Open MPI, torch and gloo listen on
"""
