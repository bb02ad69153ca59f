package telltale

import (
	"slices"
	"strings"
)

// beforeValue are keywords that come before an operand or cannot begin a path.
var beforeValue = wordSet("return typeof instanceof in of new delete void throw case do else yield await if while " +
	"for switch catch function class const let var export extends break continue default try finally with async static")

// globals are the names of the language and of test runners that may begin a path.
var globals = wordSet("process globalThis global window self require module import console Object Reflect Function " +
	"eval Error Promise Buffer atob unescape String expect jest vi")

// runnerGlobals are the names that runners define for tests.
var runnerGlobals = wordSet("expect describe it test suite jest vi beforeEach afterEach beforeAll afterAll before " +
	"after setup teardown assert")

func wordSet(words string) map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(words) {
		all[word] = true
	}
	return all
}

var (
	scriptRunners = []string{
		"node:test.", "mocha.", "vitest.", "@jest/globals.", "jest.", "jest-circus.", "jest-runner.", "@jest/core.",
		"jasmine.", "ava.", "tap.",
	}
	// Only code that changes a runner, an assertion or what is printed assigns to these.
	scriptFixed = []string{
		"assert.", "chai.", "expect.", "should.", "node:test.", "mocha.", "vitest.", "@jest/globals.", "jest.", "vi.",
		"globalThis.", "Error.prototype.", "Function.prototype.call", "Function.prototype.apply",
		"Promise.prototype.then", "Promise.prototype.catch", "Object.is", "Object.keys",
		"process.exit", "process.emit", "process.on", "process.reallyExit",
	}
	scriptHooked = []string{
		"node:module.", "module.constructor.", "require.extensions.", "require.cache.", "module.children.",
	}
	scriptPrinted = []string{
		"console.log", "console.info", "console.error", "console.warn", "process.stdout.write", "process.stderr.write",
		"process.stdout", "process.stderr",
	}
	scriptExits = []string{
		"process.reallyExit", "process.abort", "process.execve", "process._kill", "process.dlopen",
	}
	scriptHooks = []string{
		"process.binding", "process._linkedBinding", "v8.setFlagsFromString", "inspector.Session",
		"inspector/promises.Session", "async_hooks.createHook", "node:module.register", "node:module.registerHooks",
		"node:module._load",
		"node:module._extensions", "node:module._resolveFilename", "node:module.prototype",
	}
	scriptDecoders = []string{
		"atob", "fromCharCode", "fromCodePoint", "unescape", "inflateSync", "gunzipSync", "brotliDecompressSync",
		"inflateRawSync", "unzipSync",
	}
	// These functions change the members of their first argument.
	scriptSetters = []string{
		"Object.assign", "Object.defineProperty", "Object.defineProperties", "Object.setPrototypeOf", "Reflect.set",
		"Reflect.defineProperty", "Reflect.deleteProperty",
	}
)

// importsModule checks an imported module.
func (r *scriptReader) importsModule(i int, module string) {
	if matches(module, scriptRunners) {
		r.add(i, Runner, "import "+module)
	}
}

// loads checks an expression that is evaluated.
func (r *scriptReader) loads(i, end int, path string) {
	plain, called := called(path)
	switch {
	case matches(plain, scriptExits):
		r.add(i, Exit, plain)
	case plain == "process.kill" && called && r.mentions(i, end, "ppid"):
		r.add(i, Exit, plain)
	case plain == "process.exit" && called && r.atImport() && !r.program && r.endsWell(end):
		r.add(i, Exit, plain)
	case called && isListener(plain) && r.says(i, end, "exit", "beforeExit") && r.ends(i, end):
		r.add(i, Exit, "process.on exit")
	case matches(plain, scriptHooks):
		r.add(i, Hook, plain)
	case called && (plain == "eval" || plain == "Function" || strings.HasPrefix(plain, "vm.")) &&
		(r.mentions(i, end, scriptDecoders...) || r.says(i, end, "base64", "hex")):
		r.add(i, Decoded, plain)
	case called && strings.HasPrefix(plain, "child_process.") && r.mentions(i, end, "execPath", "argv0", "execArgv") &&
		(r.mentions(i, end, "argv") || r.says(i, end, "--test", "jest", "mocha")):
		r.add(i, Rerun, plain)
	case called && matches(plain, scriptSetters):
		if open := r.pairs[end-1]; open >= 0 {
			r.sets(i, open)
		}
	}
}

// sets checks Object.defineProperty(path, "name", value).
func (r *scriptReader) sets(i, open int) {
	of, at := r.chain(open+1, 1)
	if of == "" {
		return
	}
	member := "[]"
	if r.is(at, ",") {
		if key, _, ok := r.joined(at + 1); ok {
			member = key
		}
	}
	r.stores(i, -1, known(of+"."+member))
}

// ends reports whether something within ends the process as if all were well.
func (r *scriptReader) ends(from, end int) bool {
	for i := from; i < min(end, from+farthest); i++ {
		if r.tokens[i].kind != name {
			continue
		}
		switch r.tokens[i].text {
		case "reallyExit", "abort":
			return true
		case "exit":
			if r.is(i+1, "(") && r.endsWell(r.closing(i+1)+1) {
				return true
			}
		case "exitCode":
			if r.is(i+1, "=") && r.isNothing(i+2) {
				return true
			}
		}
	}
	return false
}

func isListener(path string) bool {
	return slices.Contains([]string{
		"process.on", "process.once", "process.addListener", "process.prependListener", "process.prependOnceListener",
	}, path)
}

// endsWell reports whether the call that ends here exits with success: with 0 or without an argument.
func (r *scriptReader) endsWell(end int) bool {
	open := r.pairs[end-1]
	return open == end-2 || open == end-3 && r.tokens[open+1].text == "0"
}

// stores checks what is assigned to. The assignment operator is at end; -1 if a function does the assignment.
func (r *scriptReader) stores(i, end int, path string) {
	switch {
	case path == "process.exitCode":
		if r.isNothing(end + 1) {
			r.add(i, Exit, path+" =")
		}
	case matches(path, scriptFixed):
		r.add(i, Runner, path+" =")
	case matches(path, scriptHooked):
		r.add(i, Hook, path+" =")
	case matches(path, scriptPrinted):
		r.add(i, Output, path+" =")
	}
}

// isNothing reports whether a value is 0, null or undefined.
func (r *scriptReader) isNothing(i int) bool {
	if i <= 0 || i >= len(r.tokens) {
		return false
	}
	switch r.tokens[i].text {
	case "0", "undefined", "null", "void":
		return !r.is(i+1, "?")
	}
	return false
}
