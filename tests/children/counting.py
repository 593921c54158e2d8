"""An agent's file tools as a process: counts up in a file that others count in, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from tools_support import Tools

if __name__ == "__main__":
    tools = Tools(Path(sys.argv[1]))
    left = int(sys.argv[2])
    while left:
        number = int(tools.call("read_file", path="count").splitlines()[1])
        answer = tools.call("write_file", path="count", content=str(number + 1))
        left -= answer.endswith("bytes written")
        if not answer.endswith("bytes written") and '"changed"' not in answer:
            sys.exit(answer)
