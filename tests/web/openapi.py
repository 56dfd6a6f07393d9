#!/usr/bin/env python3
"""openapi.py - whether docs/openapi.yaml is an OpenAPI description, and whether
answers of mqctl serve are as it says

Usage: openapi.py FILE [ANSWERS]

Without ANSWERS, FILE is checked by a validator of the whole standard: the module
openapi_spec_validator, or that of npm. ANSWERS has a line of JSON for each
answer: method, path, status, type, body. Each operation of FILE must have one
that is no refusal, but for streams of events. Status 0; 77 and a word if a
module is missing; else the faults are on stderr.
"""
import json
import os
import re
import shutil
import subprocess
import sys

VALIDATOR = "@seriousme/openapi-schema-validator"


class Description:
    def __init__(self, root, validator):
        self.root, self.validator, self.faults = root, validator, []

    def fault(self, where, text):
        self.faults.append(f"{where}: {text}")

    def find(self, ref):
        one = self.root
        for part in ref.removeprefix("#/").split("/"):
            one = one[part.replace("~1", "/").replace("~0", "~")]
        return one

    def resolve(self, where, one):
        """Return the object that a reference names."""
        if not (isinstance(one, dict) and "$ref" in one):
            return one
        try:
            return self.find(one["$ref"])
        except (KeyError, TypeError):
            self.fault(where, f"{one['$ref']} is not there")
            return {}

    def path_of(self, path):
        """Find the path of the file that fits, first one without parameters."""
        path = path.split("?", maxsplit=1)[0]
        for pattern in sorted(self.root["paths"], key=lambda p: p.count("{")):
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path):
                return pattern
        return None

    def answer(self, one):
        """Check one answer; return its operation if it was no error."""
        pattern, method = self.path_of(one["path"]), one["method"].lower()
        where = f"{one['method']} {one['path']} {one['status']}"
        described = self.root["paths"].get(pattern, {}).get(method)
        if described is None:
            if one["status"] < 400:
                self.fault(where, "is not described")
            return None
        responses = described["responses"]
        answer = self.resolve(where, responses.get(
            str(one["status"]), responses.get("default", {})))
        media = answer.get("content", {}).get(one["type"])
        if media is None and one["body"]:
            self.fault(where, f"is {one['type']}, not {list(answer.get('content', {}))}")
        elif media and "schema" in media:
            schema = {**media["schema"], "components": self.root["components"]}
            for error in self.validator(schema).iter_errors(json.loads(one["body"])):
                at = "/".join(map(str, error.absolute_path))
                self.fault(where, f"{at}: {error.message[:300]}")
        return (method, pattern) if one["status"] < 400 else None

    def answers(self, lines):
        seen = {self.answer(json.loads(line)) for line in lines}
        for path, item in self.root["paths"].items():
            for method, one in item.items():
                streams = any("text/event-stream" in self.resolve(path, r).get("content", {})
                              for r in one["responses"].values())
                if not streams and (method, path) not in seen:
                    self.fault(f"{method.upper()} {path}", "no answer of it was seen")


def standard_faults(path, root):
    """Return the breaches of the OpenAPI standard; None: no validator."""
    try:
        from openapi_spec_validator import OpenAPIV31SpecValidator
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
                for error in OpenAPIV31SpecValidator(root).iter_errors()]
    except ImportError:
        pass
    if not shutil.which("npm"):
        return None
    modules = subprocess.run(["npm", "root", "-g"], capture_output=True,
                             text=True, check=False).stdout.strip()
    program = os.path.join(modules, VALIDATOR, "bin", "validate-api-cli.js")
    if not os.path.exists(program):
        return None
    said = subprocess.run(["node", program, path], capture_output=True,
                          text=True, check=False).stdout
    return [] if json.loads(said)["valid"] else [said]


def main():
    try:
        import yaml
        from jsonschema import Draft202012Validator
    except ImportError as error:
        print("no", error.name, "of python3 here: scripts/deps --browser")
        return 77
    with open(sys.argv[1], encoding="utf-8") as text:
        description = Description(yaml.safe_load(text), Draft202012Validator)
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as lines:
            description.answers(lines)
    else:
        description.faults = standard_faults(sys.argv[1], description.root)
    if description.faults is None:
        print("no validator of OpenAPI here: npm, then scripts/deps --browser")
        return 77
    print("\n".join(description.faults), file=sys.stderr)
    return 1 if description.faults else 0


if __name__ == "__main__":
    sys.exit(main())
