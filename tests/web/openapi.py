#!/usr/bin/env python3
"""openapi.py - whether docs/openapi.yaml is an OpenAPI description, and whether
answers of mqctl serve are as it says

Usage: openapi.py FILE [ANSWERS]

ANSWERS has a line of JSON for each answer: method, path, status, type, body.
Each operation of FILE must have one that is no refusal, but for streams of
events. Status 0; 77 and a word if a module is missing; else the faults are on
stderr.
"""
import json
import re
import sys

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
# What an object of that kind may have (OpenAPI 3.1); it may have x-... as well.
MEMBERS = {
    "root": {"openapi", "info", "servers", "security", "paths", "components",
             "tags"},
    "operation": {"summary", "description", "operationId", "parameters",
                  "requestBody", "responses", "security", "tags", "deprecated"},
    "parameter": {"name", "in", "description", "required", "deprecated",
                  "schema", "style", "explode", "example"},
    "response": {"description", "headers", "content"},
    "header": {"description", "required", "schema"},
    "body": {"description", "content", "required"},
    "media": {"schema", "example"},
}


class Description:
    def __init__(self, root, validator):
        self.root, self.validator, self.faults = root, validator, []

    def fault(self, where, text):
        self.faults.append(f"{where}: {text}")

    def members(self, where, kind, one, needs=()):
        if not isinstance(one, dict):
            self.fault(where, "is no object")
            return False
        for name in one:
            if name not in MEMBERS[kind] and not str(name).startswith("x-"):
                self.fault(where, f"a {kind} has no {name!r}")
        for name in needs:
            if name not in one:
                self.fault(where, f"has no {name!r}")
        return True

    def find(self, ref):
        one = self.root
        for part in ref.removeprefix("#/").split("/"):
            one = one[part.replace("~1", "/").replace("~0", "~")]
        return one

    def resolve(self, where, one):
        """What a reference stands for."""
        if not (isinstance(one, dict) and "$ref" in one):
            return one
        try:
            return self.find(one["$ref"])
        except (KeyError, TypeError):
            self.fault(where, f"{one['$ref']} is not there")
            return {}

    def schema(self, where, schema):
        try:
            self.validator.check_schema(schema)
        except Exception as error:  # pylint: disable=broad-except
            self.fault(where, str(error).split("\n", maxsplit=1)[0])
        for ref in re.findall(r'"\$ref": "([^"]*)"', json.dumps(schema)):
            self.resolve(where, {"$ref": ref})

    def content(self, where, content):
        for kind, media in (content or {}).items():
            if self.members(f"{where} {kind}", "media", media) and "schema" in media:
                self.schema(f"{where} {kind}", media["schema"])

    def parameter(self, where, one):
        one = self.resolve(where, one)
        if not self.members(where, "parameter", one, ("name", "in", "schema")):
            return None
        if one.get("in") not in ("path", "query", "header", "cookie"):
            self.fault(where, f"in: {one.get('in')!r}")
        if one.get("in") == "path" and one.get("required") is not True:
            self.fault(where, "a parameter of a path is not required")
        self.schema(where, one.get("schema", {}))
        return one.get("in"), one.get("name")

    def operation(self, where, path, one):
        if not self.members(where, "operation", one, ("responses",)):
            return
        has = [self.parameter(f"{where} parameter", p)
               for p in one.get("parameters", [])]
        if len(set(has)) != len(has):
            self.fault(where, "a parameter is there twice")
        names = set(re.findall(r"{(\w+)}", path))
        if {n for kind, n in filter(None, has) if kind == "path"} != names:
            self.fault(where, f"its parameters are not those of the path {names}")
        if "requestBody" in one:
            body = self.resolve(where, one["requestBody"])
            if self.members(f"{where} body", "body", body, ("content",)):
                self.content(f"{where} body", body["content"])
        for status, answer in one["responses"].items():
            at = f"{where} {status}"
            if not re.fullmatch(r"[1-5]([0-9][0-9]|XX)|default", str(status)):
                self.fault(at, "is no status")
            answer = self.resolve(at, answer)
            if self.members(at, "response", answer, ("description",)):
                self.content(at, answer.get("content"))
                for name, header in answer.get("headers", {}).items():
                    self.members(f"{at} {name}", "header", header, ("schema",))

    def check(self):
        if not self.members("the file", "root", self.root,
                            ("openapi", "info", "paths")):
            return
        if not str(self.root.get("openapi")).startswith("3.1."):
            self.fault("openapi", "is not 3.1")
        if not {"title", "version"} <= set(self.root.get("info", {})):
            self.fault("info", "has no title or version")
        for path, item in self.root["paths"].items():
            for method, one in item.items():
                if method not in METHODS:
                    self.fault(path, f"has no method {method!r}")
                    continue
                self.operation(f"{method.upper()} {path}", path, one)
        for name, schema in self.root.get("components", {}).get("schemas", {}).items():
            self.schema(f"schema {name}", schema)

    # ---- answers ----

    def path_of(self, path):
        """The path in the file that fits; one without parameters comes first."""
        path = path.split("?", maxsplit=1)[0]
        for pattern in sorted(self.root["paths"], key=lambda p: p.count("{")):
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", pattern), path):
                return pattern
        return None

    def answer(self, one):
        """Whether it is as described; the operation that it was for."""
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


def main():
    try:
        import yaml
        from jsonschema import Draft202012Validator
    except ImportError as error:
        print("no", error.name, "of python3 here: scripts/deps --browser")
        return 77
    with open(sys.argv[1], encoding="utf-8") as text:
        description = Description(yaml.safe_load(text), Draft202012Validator)
    description.check()
    try:  # the validator of the whole standard, where it is installed
        from openapi_spec_validator import OpenAPIV31SpecValidator
        for error in OpenAPIV31SpecValidator(description.root).iter_errors():
            description.fault("/".join(map(str, error.absolute_path)), error.message)
    except ImportError:
        pass
    if len(sys.argv) > 2 and not description.faults:
        with open(sys.argv[2], encoding="utf-8") as lines:
            description.answers(lines)
    print("\n".join(description.faults), file=sys.stderr)
    return 1 if description.faults else 0


if __name__ == "__main__":
    sys.exit(main())
