"""What `.ci/run` does with servers that are not its own."""

import subprocess
from pathlib import Path

from redis import Redis

from cardledger.embedded.servers import OwnRedis

_SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
_FUNCTION = 'source <(sed -n "/^empty_redis() {/,/^}/p" "$1"); empty_redis "$2" "$3"'


def empty(url: str, workers: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", _FUNCTION, "bash", str(_SCRIPT), url, str(workers)],
        cwd=_SCRIPT.parents[1],
        capture_output=True,
        check=False,
        text=True,
    )


def test_a_redis_database_that_is_not_empty_is_skipped(tmp_path: Path) -> None:
    server = OwnRedis(tmp_path)
    server.start()
    try:
        base = server.url.rpartition("/")[0] if server.url.count("/") > 2 else server.url
        for number in (5, 2):
            with Redis.from_url(f"{base}/{number}") as client:
                client.set("other", "data")

        found, none = empty(f"{base}/5", 2), empty(f"{base}/2", 3)
    finally:
        server.stop()

    assert found.stdout == f"{base}/4\n"
    assert found.stderr == "Redis database 5 has 1 keys: skipped\n"
    assert none.returncode == 1
    assert "no 3 empty Redis databases in a row" in none.stderr
