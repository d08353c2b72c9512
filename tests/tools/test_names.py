"""The reading of strace's lines, from which the page about names in common is made."""

import names

LINES = """\
10 openat(AT_FDCWD</kit>, "out.txt", O_WRONLY|O_CREAT, 0666) = 3</kit/out.txt>
10 openat(AT_FDCWD</kit>, "absent", O_RDWR) = -1 ENOENT (No such file or directory)
11 openat(AT_FDCWD</kit>, "/etc/hosts", O_RDONLY <unfinished ...>
10 rename("/kit/a", "/kit/b") = 0
11 <... openat resumed>) = 4</etc/hosts>
10 unlinkat(5</kit/folder>, "c", 0) = 0
11 bind(6<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(29500), sin_addr=inet_addr("127.0.0.1")}, 16) = 0
11 bind(7<TCP:[2]>, {sa_family=AF_INET, sin_port=htons(0), sin_addr=inet_addr("0.0.0.0")}, 16) = 0
11 bind(8<UNIX-STREAM:[3]>, {sa_family=AF_UNIX, sun_path="/tmp/socket"}, 110) = 0
11 shmget(0x1234, 4096, IPC_CREAT|0600) = 5
11 shmget(IPC_PRIVATE, 4096, IPC_CREAT|0600) = 6
10 kill(11, SIGTERM) = 0
10 kill(4711, SIGTERM) = 0
10 --- SIGCHLD {si_signo=SIGCHLD} ---
""".splitlines()


def test_what_a_run_changes_and_reads():
    found = names.record(LINES)
    files = {"/kit/out.txt", "/kit/a", "/kit/b", "/kit/folder/c", "/tmp/socket"}
    assert set(found["changed"]) == files | {"port 29500", "shmget 0x1234", "process 4711"}
    assert found["read"] == ["/etc/hosts"] and found["calls"] == 11


def one(changed=(), read=()):
    return {"changed": changed, "read": read, "calls": 1}


def test_in_common_is_what_one_changes_and_another_names():
    first = one(["a", "b", "own"], ["read by both"])
    records = {
        ("x", "1"): first,
        ("x", "2"): one(["own"]),
        ("y", "1"): one(["a"], ["b", "read by both"]),
        ("y", "2"): one(),
    }
    assert names.in_common(records) == {
        "a": ({"x", "y"}, set()),
        "b": ({"x"}, {"y"}),
        "own": ({"x"}, set()),
    }
    text, unexplained = names.page(
        records, [{"name": "a|b", "what": "letters", "why": "they are locked"}]
    )
    assert "| letters | 2 | 2 | 1 | they are locked |" in text and "1 names have no reason" in text
    assert unexplained == ["- `own`: changed by x; read by none"]
