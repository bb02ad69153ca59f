"""Watches a process that runs tests, from inside. It is loaded by the interpreter before anything else.

It writes one line to RECORD for each event. If a process ends without reaching its exit, the line about its end is
missing. Functions of the runner that the code under test has replaced are found by comparing them before the first line
of the repository runs and when the process ends.
"""


def _watch(record, file, worker):
    import atexit
    import builtins
    import os
    import sys
    import time

    # Bind what is used at the end now, because the code under test may replace it.
    bool, getattr, isinstance, len, list, set, str, type, vars = (
        builtins.bool, builtins.getattr, builtins.isinstance, builtins.len, builtins.list, builtins.set, builtins.str,
        builtins.type, builtins.vars)
    Failure = builtins.Exception
    getpid, write, close, opened = os.getpid, os.write, os.close, os.open
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    started, modules, frames = getpid(), sys.modules, sys._getframe
    function, native, compiled = type(_watch), type(len), type(_watch.__code__)
    library, sep = os.path.dirname(os.__file__) + os.sep, os.sep

    def say(event, text=""):
        for character, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            text = text.replace(character, escape)
        line = "\t".join((event, str(getpid()), str(started), text)) + "\n"
        file = opened(record, append, 0o666)
        try:
            write(file, line.encode("utf-8", "backslashreplace"))
        finally:
            close(file)

    def foreign(path):
        """Reports whether a file is neither a part of Python nor installed."""
        return bool(path) and not (path.startswith(("<", library)) or sep + "site-packages" + sep in path or
                                   sep + "dist-packages" + sep in path)

    def watched(name):
        top = name.partition(".")[0]
        return (top in ("_pytest", "pluggy", "pytest", "xdist", "execnet", "builtins") or
                top == "unittest" and name != "unittest.mock" or name.startswith("django.test"))

    def code(value):
        found = getattr(value, "__code__", None)
        return found if isinstance(found, compiled) else None

    def entries(name, module):
        """Yields the functions and classes of a module, and the functions of its classes."""
        for key, value in list(vars(module).items()):
            if isinstance(value, (function, type)) or isinstance(value, native) and name == "builtins":
                yield name + "." + key, value
            if name == "builtins" or not isinstance(value, type) or getattr(value, "__module__", None) != name:
                continue
            for attribute, member in list(vars(value).items()):
                member = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                if isinstance(member, (function, type)):
                    yield ".".join((name, key, attribute)), member

    # These matter only at an interactive prompt.
    free = set("builtins." + name for name in ("_", "copyright", "credits", "exit", "help", "license", "quit"))
    known, looked, members, managers, loaded = {}, {}, {}, [], [0]

    def look():
        """Remembers the modules of the runner that have been loaded since the last look."""
        if len(modules) == loaded[0]:
            return
        loaded[0] = len(modules)
        for name, module in list(modules.items()):
            if name in looked or not watched(name) or foreign(getattr(module, "__file__", None)):
                continue
            looked[name], members[name] = module, set()
            for key, value in entries(name, module):
                if code(value) is None or not foreign(code(value).co_filename):
                    known[key] = value, code(value)
                    members[name].add(key)
        if not managers and "_pytest.config" in modules:
            frame = frames()
            while frame is not None and not managers:
                for name in ("config", "early_config", "session"):
                    config = frame.f_locals.get(name)
                    manager = getattr(getattr(config, "config", config), "pluginmanager", None)
                    if manager is not None:
                        managers.append(manager)
                        break
                frame = frame.f_back

    def there(module, path):
        """Reports whether a module, or a class in it, still has a member with this name."""
        owner, _, name = path.rpartition(".")
        owner = vars(module).get(owner) if owner else module
        return owner is not None and name in getattr(owner, "__dict__", ())

    def place(value):
        at = code(value)
        return " (%s)" % at.co_filename if at is not None else ""

    def changes():
        """Yields what is not any more what it was."""
        for name, module in looked.items():
            if modules.get(name) is not module:
                yield name + " is another module"
                continue
            rest = set(members[name])
            for key, value in entries(name, module):
                rest.discard(key)
                before = known.get(key)
                at = code(value)
                if key in free:
                    continue
                if before is None:
                    if at is not None and foreign(at.co_filename):
                        yield key + " was added" + place(value)
                elif before[0] is value:
                    if before[1] is not at:
                        yield key + " was replaced" + place(value)
                elif at is None or at.co_filename != getattr(module, "__file__", None) or at.co_name != key.rpartition(".")[2]:
                    yield key + " was replaced" + place(value)
            for key in rest:
                if key not in free and there(module, key[len(name) + 1:]):
                    yield key + " was replaced"
        for name in ("trace", "profile"):
            hook = getattr(sys, "get" + name)()
            at = code(hook)
            if at is not None and foreign(at.co_filename):
                yield "sys.set" + name + " is in use" + place(hook)
        for manager in managers:
            for name, caller in list(vars(manager.hook).items()):
                for one in getattr(caller, "get_hookimpls", list)():
                    at = code(getattr(one.function, "__func__", one.function))
                    if at is not None and foreign(at.co_filename) and not at.co_filename.endswith("conftest.py"):
                        yield "the hook %s is implemented in %s" % (name, at.co_filename)
            for plugin in list(manager.get_plugins()):
                if type(plugin).__module__ == "__channelexec__":  # what a worker of pytest-xdist reports with
                    for owner in (plugin, type(plugin)):
                        for key, value in list(vars(owner).items()):
                            at = code(getattr(value, "__func__", value))
                            if at is not None and foreign(at.co_filename):
                                yield "%s.%s was replaced%s" % (type(plugin).__name__, key, place(value))

    # Replacements that are undone before the end are found while a failure is reported, which compiles sources.
    # The first looks are free. Later ones take at most a fiftieth of the time. Their cost is CPU time, which does not depend
    # on other processes.
    seen, looking, due, free, entered = set(), [False], [0.0], [8], [False]
    clock, spent = time.perf_counter, time.process_time

    def glance():
        """Remembers functions of the repository, other than its tests, that are in the place of the runner's."""
        if looking[0] or not entered[0] or free[0] <= 0 and clock() < due[0] or getpid() != started:
            return
        looking[0], began = True, spent()
        try:
            for name, module in list(looked.items()):
                if name == "builtins" or modules.get(name) is not module:
                    continue
                for key, value in entries(name, module):
                    before, at = known.get(key), code(value)
                    if before is not None and at is not before[1] and at is not None and hides(at.co_filename):
                        seen.add(key + " was replaced" + place(value))
        except Failure:
            pass
        due[0], free[0], looking[0] = clock() + 50 * (spent() - began), free[0] - 1, False

    def hides(path):
        return foreign(path) and "test" not in path.rpartition(sep)[2] and sep + "test" not in path

    def tests(path):
        return isinstance(path, str) and path.endswith(".py") and "test" in path and foreign(path)

    def reporting(path):
        return not isinstance(path, str) or path.startswith("<")

    # pytest-xdist runs tests in worker processes whose command lines end with this code.
    boot = "import sys;exec(eval(sys.stdin.readline()))"
    program = "exec(compile(open(%r).read(), %r, 'exec'), {'__name__': 'worker', '__file__': %r});" % (file, file, file)
    workers = [0]

    def watch(command):
        """Makes a worker of pytest-xdist run this program first."""
        if type(command) is list and command[-2:] == ["-c", boot]:
            command[-1] = program + boot
            workers[0] += 1

    def unwatched():
        """Reports whether pytest-xdist ran the tests in workers of which none is watched."""
        return not workers[0] and any(manager.hasplugin("dsession") for manager in managers)

    def end():
        if getpid() != started:
            say("copied")
            return
        try:
            found = seen.union(changes())
            if unwatched():
                found.add("no worker of pytest-xdist was started by subprocess.Popen")
        except Failure as e:
            found = ["the runner cannot be looked at: " + type(e).__name__]
        for text in list(found)[:50]:
            say("changed", text)
        say("ended")

    # There are thousands of other events.
    wanted = frozenset(("subprocess.Popen", "open", "compile", "exec"))

    def audit(event, arguments):
        if event not in wanted:
            return
        if event == "subprocess.Popen":
            watch(arguments[1])
            return
        if event == "open" and tests(arguments[0]) or event == "compile" and reporting(arguments[1]):
            glance()
        if event != "exec" or not foreign(getattr(arguments[0], "co_filename", None)):
            return
        entered[0] = True
        try:
            look()
        except Failure:
            pass  # the code that runs next must not notice

    look()
    words = getattr(sys, "orig_argv", [""])
    words = words[:3] if words[1:2] == ["-m"] else words[:2]  # the rest may be names of tests
    words = ["a worker of pytest-xdist"] if worker else words
    say("started", " ".join(word.rpartition(sep)[2] for word in words))
    atexit.register(end)
    if hasattr(sys, "addaudithook"):
        sys.addaudithook(audit)


def _hide(here):
    """Hides the witness from the repository and from the processes that it starts."""
    import os
    import sys
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [entry for entry in sys.path if entry != here]
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != here]
    if rest and rest != [""]:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path_importer_cache.pop(here, None)
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_watch(RECORD, __file__, __name__ == "worker")
if __name__ != "worker":
    _hide(__file__.rpartition("/")[0])
del _watch, _hide
