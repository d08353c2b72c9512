"""Where ranks run: this machine, hosts by ssh, nodes of a Slurm job; and what is done there.

place.py          the hosts and their slots, how a shell line gets there, which network they share
find.py, site.py  which place is meant; the site file is an instructor's answer for all notebooks
slurm.py, srun.py a job that holds nodes; running a shell line on one of them
group.py, host.py the kernel's side: all hosts of a cluster; one of them
agent.py          what the kit does on another host; heartbeat.py keeps the way to it alive
exit_watcher.py   in which order ranks ended
port_filter.py    no stranger connects to what Open MPI, torch and gloo listen on
limits.py         cores, memory, tasks, GPUs of this process; control_groups.py reads Linux's limits
"""
