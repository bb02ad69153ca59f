package telltale

import (
	"regexp"
	"slices"
	"strings"
)

// keywords cannot begin an expression with a name.
var keywords = wordSet("and as assert async await break class continue def del elif else except finally for from " +
	"global if import in is lambda nonlocal not or pass raise return try while with yield None True False")

var (
	pythonExits = []string{
		"os._exit", "os.abort", "posix._exit", "posix.abort", "os.execv", "os.execve", "os.execvp", "os.execvpe", "os.execl",
		"os.execle", "os.execlp", "os.execlpe",
	}
	pythonHooks = []string{
		"sys.settrace", "sys.setprofile", "threading.settrace", "threading.setprofile", "threading.settrace_all_threads",
		"threading.setprofile_all_threads", "sys.addaudithook", "sys.monitoring.", "sys._current_frames", "sys.call_tracing",
		"gc.get_objects", "gc.get_referrers", "ctypes.pythonapi.", "ctypes.memmove", "importlib._bootstrap.",
		"importlib._bootstrap_external.", "importlib.util.cache_from_source", "importlib.util.source_hash",
		"py_compile.compile", "sys.meta_path.insert", "sys.meta_path.remove", "sys.meta_path.clear",
		"sys.path_hooks.insert", "sys.path_importer_cache.clear",
	}
	pythonDecoders = []string{
		"b64decode", "b32decode", "b16decode", "a85decode", "b85decode", "decodebytes", "unhexlify", "fromhex", "decompress",
		"standard_b64decode", "urlsafe_b64decode",
	}
	// Only code that changes a runner assigns to these. builtins._ and similar names are for translations.
	pythonFixed = []string{
		"unittest.", "_pytest.", "pytest.", "pluggy.", "nose.", "doctest.", "django.test.", "builtins.", "sys.exit",
		"os._exit", "sys.settrace",
	}
	pythonHooked = []string{"sys.meta_path.", "sys.path_hooks.", "sys.path_importer_cache."}
	translations = []string{"builtins._", "builtins.ngettext", "builtins.pgettext", "builtins.npgettext"}

	libraryExit  = regexp.MustCompile(`^ctypes\..*(CDLL|cdll).*\.(_exit|exit|abort|kill|raise|_Exit|execv\w*|syscall)$`)
	runnerModule = regexp.MustCompile(`^(_pytest|pytest|unittest|pluggy|nose|doctest|builtins)\b`)
	processFile  = regexp.MustCompile(`^/proc/(self|\d+|%|$).*(cmdline|mem|maps)?$`)
	processPart  = regexp.MustCompile(`/(cmdline|mem|maps|environ)$`)
)

// importsModule checks an imported module.
func (r *pythonReader) importsModule(i int, module string) {
	if matches(module, []string{"_pytest.", "pytest.", "pluggy.", "xdist."}) {
		r.add(i, Runner, "import "+module)
	}
}

// loads checks an expression that is evaluated.
func (r *pythonReader) loads(i, end int, path string) {
	plain, called := called(path)
	if module, ok := strings.CutPrefix(path, modulePath); ok {
		if runnerModule.MatchString(module) && !strings.HasPrefix(module, "builtins") {
			r.add(i, Runner, "sys.modules "+runnerModule.FindString(module))
		}
		return
	}
	switch {
	case plain == "os.fork":
		r.forks = true
	case matches(plain, pythonExits), libraryExit.MatchString(plain):
		if !r.forks || r.atImport() { // this is how a forked child process ends
			r.add(i, Exit, plain)
		}
	case called && (plain == "os.kill" || plain == "os.killpg") &&
		r.mentions(i, end, "getppid", "getpid", "getpgrp", "getpgid"):
		r.add(i, Exit, plain)
	case matches(plain, pythonHooks):
		r.add(i, Hook, plain)
	case strings.HasPrefix(plain, "unittest.mock.patch"):
		r.add(i, Runner, "unittest.mock.patch")
	case called && slices.Contains([]string{"builtins.exec", "builtins.eval", "builtins.compile"}, plain) &&
		r.mentions(i, end, pythonDecoders...), plain == "marshal.loads", called && plain == "zipimport.zipimporter":
		r.add(i, Decoded, plain)
	case plain == "sys.orig_argv":
		r.add(i, Rerun, plain)
	case called && (strings.HasPrefix(plain, "subprocess.") || matches(plain, []string{"os.system", "os.popen"})) &&
		r.says(i, end, "pytest", "unittest"):
		r.add(i, Rerun, plain)
	case r.atImport():
		r.loadsAtImport(i, end, path)
	}
	if called && (plain == "builtins.setattr" || plain == "builtins.delattr") {
		r.setsAttribute(i, end)
	}
	if strings.HasSuffix(plain, ".f_globals.update") || strings.HasSuffix(plain, ".f_locals.update") ||
		strings.HasSuffix(plain, ".f_builtins.update") {
		r.add(i, Hook, "f_globals")
	}
}

// loadsAtImport checks an expression that is evaluated when the module is imported.
func (r *pythonReader) loadsAtImport(i, end int, path string) {
	switch path {
	case "os.dup2()":
		r.add(i, Output, "os.dup2")
	case "os.write()":
		if open := r.pairs[end-1]; open >= 0 && (r.tokens[open+1].text == "1" || r.tokens[open+1].text == "2") {
			r.add(i, Output, "os.write")
		}
	case "threading.Thread().start()", "threading.Timer().start()", "_thread.start_new_thread()":
		r.add(i, Hook, strings.TrimSuffix(strings.Replace(path, "()", "", 1), ".start()"))
	case "signal.setitimer()", "signal.alarm()":
		r.add(i, Hook, strings.TrimSuffix(path, "()"))
	}
}

// setsAttribute checks setattr(path, "name", value).
func (r *pythonReader) setsAttribute(i, end int) {
	open := r.pairs[end-1]
	if open < 0 {
		return
	}
	of, at := r.chain(open+1, 1)
	if of == "" || !r.is(at, ",") {
		return
	}
	attribute, _, ok := r.joined(at + 1)
	if !ok {
		attribute = "[]"
	}
	r.stores(i, end, of+"."+attribute)
}

// stores checks what is assigned to or deleted.
func (r *pythonReader) stores(i, _ int, path string) {
	if module, ok := strings.CutPrefix(path, modulePath); ok {
		if runnerModule.MatchString(module) {
			r.add(i, Runner, "sys.modules "+runnerModule.FindString(module))
		}
		return
	}
	attribute := path[strings.LastIndexByte(path, '.')+1:]
	switch {
	case slices.Contains(translations, path):
	case matches(path, pythonFixed) && !strings.Contains(path, "()"):
		r.add(i, Runner, path+" =")
	case matches(path, pythonHooked):
		r.add(i, Hook, path+" =")
	case path == "sys.stdout.write", path == "sys.stderr.write":
		r.add(i, Output, path+" =")
	case r.atImport() && matches(path, []string{"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}):
		r.add(i, Output, path+" =")
	case attribute == "__code__", attribute == "f_trace":
		r.add(i, Hook, attribute)
	case strings.Contains(path, ".f_globals"), strings.Contains(path, ".f_locals["), strings.Contains(path, ".f_builtins"):
		r.add(i, Hook, "f_globals")
	}
}

// strings checks a string. For composed strings, there are additional rules.
func (r *pythonReader) strings(i int, s string, composed bool) {
	if f, ok := readText(s); ok {
		r.add(i, f.Rule, f.What)
	}
	if composed && runnerModule.MatchString(s) && len(s) < 60 && !strings.ContainsAny(s, " \n") {
		r.add(i, Runner, "a name put together: "+runnerModule.FindString(s))
	}
	if processFile.MatchString(s) && processPart.MatchString(s) {
		r.add(i, Rerun, "/proc/*/"+s[strings.LastIndexByte(s, '/')+1:])
	}
}

// farthest is the maximum number of tokens of a call's arguments that are checked, so that nested calls stay cheap.
const farthest = 400

// mentions reports whether an expression contains one of the names.
func (r *reader) mentions(from, end int, names ...string) bool {
	return r.within(from, end, func(t token) bool { return t.kind == name && slices.Contains(names, t.text) })
}

// says reports whether a string in the expression contains one of the words.
func (r *reader) says(from, end int, words ...string) bool {
	return r.within(from, end, func(t token) bool {
		return t.kind == text && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(t.text, w) })
	})
}

func (r *reader) within(from, end int, wanted func(token) bool) bool {
	return slices.ContainsFunc(r.tokens[from:min(end, from+farthest)], wanted)
}

// called removes the calls from the end of a path.
func called(path string) (plain string, ok bool) {
	plain = path
	for strings.HasSuffix(plain, "()") {
		plain = strings.TrimSuffix(plain, "()")
	}
	return plain, plain != path
}
