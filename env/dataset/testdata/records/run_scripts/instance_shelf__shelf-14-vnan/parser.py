import json
import sys

tests = []
for line in open(sys.argv[1]):
    words = line.split()
    if len(words) > 1 and words[1] in ("PASSED", "FAILED", "SKIPPED", "ERROR"):
        tests.append({"name": words[0], "status": words[1]})
with open(sys.argv[3], "w") as out:
    json.dump({"tests": tests}, out, indent=2)
