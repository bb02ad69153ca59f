package setup_test

import (
	"testing"

	"deepswe/env"
	"deepswe/env/setup"
)

// TestExplain uses messages that tools have printed.
func TestExplain(t *testing.T) {
	for name, c := range map[string]struct{ line, stdout, stderr, reason, next string }{
		"npm, peers": {
			line: "npm install",
			stderr: "npm error code ERESOLVE\nnpm error ERESOLVE unable to resolve dependency tree\nnpm error\n" +
				"npm error While resolving: x@1.0.0\nnpm error Found: react@18.2.0\nnpm error\n" +
				"npm error Could not resolve dependency:\nnpm error peer react@\"17.0.2\" from react-dom@17.0.2\n" +
				"npm error Fix the upstream dependency conflict, or retry this command with --force or --legacy-peer-deps to accept\n",
			reason: `peer react@"17.0.2" from react-dom@17.0.2`, next: "npm install --legacy-peer-deps",
		},
		"npm, a lock file that does not fit": {
			line: "npm ci",
			stderr: "npm error code EUSAGE\nnpm error\nnpm error `npm ci` can only install packages when your package.json and " +
				"package-lock.json are in sync.\nnpm error Missing: a@1 from lock file\n",
			reason: "`npm ci` can only install packages when your package.json and package-lock.json are in sync.",
			next:   "npm install",
		},
		"npm, no such package": {
			line: "npm install", stderr: "npm ERR! code E404\nnpm ERR! 404 Not Found - GET https://r/x\n",
			reason: "404 Not Found - GET https://r/x",
		},
		"pnpm": {
			line:   "npx --yes pnpm install --frozen-lockfile",
			stdout: " ERR_PNPM_OUTDATED_LOCKFILE  Cannot install with \"frozen-lockfile\"\n\nNote that in CI it is on.\n",
			reason: "ERR_PNPM_OUTDATED_LOCKFILE  Cannot install with \"frozen-lockfile\"",
			next:   "npx --yes pnpm install --no-frozen-lockfile",
		},
		"corepack, a registry without signatures": {
			line: "corepack pnpm install --frozen-lockfile",
			stderr: "/usr/lib/node_modules/corepack/dist/lib/corepack.cjs:21999\n" +
				"Error: No compatible signature found in package metadata\n    at verifySignature (corepack.cjs:21999:63)\n",
			reason: "No compatible signature found in package metadata",
			next:   "COREPACK_INTEGRITY_KEYS=0 corepack pnpm install --frozen-lockfile",
		},
		"pnpm, older than Node": {
			line: "umask 0; corepack pnpm install --frozen-lockfile",
			stdout: " WARN  GET https://r/x/-/x-1.0.0.tgz error (ERR_INVALID_THIS). Will retry in 1 second. 2 retries left.\n" +
				" ERR_INVALID_THIS  Value of \"this\" must be of type URLSearchParams\n",
			reason: "ERR_INVALID_THIS  Value of \"this\" must be of type URLSearchParams",
			next:   "umask 0; corepack pnpm@7.33.7 install --frozen-lockfile",
		},
		"yarn, a newer Node": {
			line: "corepack yarn install --frozen-lockfile",
			stderr: "error x@25.0.3: The engine \"node\" is incompatible with this module. Expected version \"^22\". Got \"20.1\"\n" +
				"error Found incompatible module.\n",
			reason: `x@25.0.3: The engine "node" is incompatible with this module. Expected version "^22". Got "20.1"`,
			next:   "corepack yarn install --frozen-lockfile --ignore-engines",
		},
		"cargo": {
			line:   "cargo fetch --locked",
			stderr: "    Updating index\nerror: the lock file /x/Cargo.lock needs to be updated but --locked was passed to prevent this\n",
			reason: "the lock file /x/Cargo.lock needs to be updated but --locked was passed to prevent this", next: "cargo fetch",
		},
		"pip": {
			line: "pip install x", stderr: "ERROR: Could not find a version that satisfies the requirement x\nERROR: No matching\n",
			reason: "Could not find a version that satisfies the requirement x",
		},
		"maven, a test that ends its JVM": {
			line: "mvn -B test", stdout: "\x1b[0m\x1b[0m[ERROR] Failed to execute goal org.apache.maven.plugins:" +
				"maven-surefire-plugin:3.5.6:test (x) on project a: \n[ERROR] The forked VM terminated without properly saying " +
				"goodbye. VM crash or System.exit called?\n\x1b[0m\x1b[0m\n",
			reason: "Failed to execute goal org.apache.maven.plugins:maven-surefire-plugin:3.5.6:test (x) on project a:",
			next:   "mvn -B test || find . -path '*/surefire-reports/*.xml' | grep -q .",
		},
		"maven, too old": {
			line: "mvn -B test", stdout: "[INFO] --- maven-enforcer-plugin:3.6:enforce (c) @ d ---\n" +
				"[ERROR] Failed to execute goal a:b:0.18:check (c) on project d: The plugin a:b:0.18 " +
				"requires Maven version 3.9 -> [Help 1]\n",
			reason: "Failed to execute goal a:b:0.18:check (c) on project d: The plugin a:b:0.18 requires Maven version 3.9 -> " +
				"[Help 1]",
			next: "mvn -B -N org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack " +
				"-Dartifact=org.apache.maven:apache-maven:3.9.11:tar.gz:bin -DoutputDirectory=.deps && " +
				".deps/apache-maven-3.9.11/bin/mvn -B test",
		},
		"maven, too new for the project's JUnit": {
			line: "mvn -B -Dmaven.test.failure.ignore=true test", stdout: "[ERROR] Failed to execute goal " +
				"org.apache.maven.plugins:maven-surefire-plugin:3.6.1:test (default-test) on project a: The used JUnit Version 4.8.1 " +
				"is not supported anymore. Please update to version 4.12+ -> [Help 1]\n",
			reason: "Failed to execute goal org.apache.maven.plugins:maven-surefire-plugin:3.6.1:test (default-test) on " +
				"project a: The used JUnit Version 4.8.1 is not supported anymore. Please update to version 4.12+ -> [Help 1]",
			next: "mvn -B -Dmaven.test.failure.ignore=true test-compile " +
				"org.apache.maven.plugins:maven-surefire-plugin:3.5.6:test",
		},
		"maven, a compiler": {
			line: "mvn -B test", stdout: "[ERROR] COMPILATION ERROR : \n[INFO] -----\n[ERROR] /a/A.java:[3,8] cannot find symbol\n",
			reason: "/a/A.java:[3,8] cannot find symbol",
		},
		"gradle, its own cannot be downloaded": {
			line:   "true && ./gradlew --console=plain test",
			stdout: "Downloading https://services.gradle.org/distributions/gradle-4.4.1-bin.zip\n",
			stderr: "\nException in thread \"main\" java.net.UnknownHostException: services.gradle.org\n" +
				"\tat org.gradle.wrapper.Install$1.call(Install.java:61)\n",
			reason: "at org.gradle.wrapper.Install$1.call(Install.java:61)",
			next:   "true && gradle --console=plain test",
		},
		"gradle, no such package": {
			line: "gradle --console=plain test", stdout: ":compileTestJava FAILED\n",
			stderr: "FAILURE: Build failed with an exception.\n\n* What went wrong:\nCould not resolve all files for " +
				"configuration ':testCompileClasspath'.\n> Could not find junit:junit:99.\n  Searched in the following locations:\n",
			reason: "Could not find junit:junit:99.",
		},
		"gradle, a compiler": {
			line: "gradle --console=plain test", stderr: "/testbed/core/A.java:10: error: ';' expected\n1 error\n\nFAILURE: Build " +
				"failed with an exception.\n\n* What went wrong:\nExecution failed for task ':core:compileJava'.\n> Compilation failed\n",
			reason: "Execution failed for task ':core:compileJava'.",
		},
		"composer, an older PHP": {
			line: "composer install --no-scripts",
			stderr: "Your requirements could not be resolved to an installable set of packages.\n\n  Problem 1\n" +
				"    - Root composer.json requires php ^7.1 but your php version (8.2.36) does not satisfy that requirement.\n",
			reason: "Root composer.json requires php ^7.1 but your php version (8.2.36) does not satisfy that requirement.",
			next:   "composer install --no-scripts --ignore-platform-req=php+ --ignore-platform-req='ext-*'",
		},
		"composer, a lock file that does not fit": {
			line: "composer install --no-scripts",
			stderr: "Your lock file does not contain a compatible set of packages. Please run composer update.\n\n" +
				"  Problem 1\n    - a/b is locked to version 1.0 and could not be found.\n",
			reason: "a/b is locked to version 1.0 and could not be found.", next: "composer update --no-scripts",
		},
		"composer, an exception": {
			line: "composer install", stderr: "\nIn PluginManager.php line 768:\n         \n  a/b contains a Composer plugin " +
				"which is blocked by your allow-plugins config.  \n  Trust it.\n\ninstall [--dry-run] [<packages>...]\n",
			reason: "a/b contains a Composer plugin which is blocked by your allow-plugins config.",
			next:   "composer install --no-plugins",
		},
		"bundler": {
			line: "bundle install", stderr: "--- ERROR REPORT TEMPLATE -----\n\n```\nNet::HTTPFatalError: 502 \"Bad Gateway\"\n" +
				"  /usr/lib/ruby/3.1.0/net/http/response.rb:124:in `error!'\n```\n\nIf there aren't any reports yet, fill it in.\n",
			reason: `Net::HTTPFatalError: 502 "Bad Gateway"`,
		},
		"another":            {line: "make deps", stdout: "step 1\n", stderr: "it broke\n\n", reason: "it broke"},
		"the remedy as well": {line: "npm ci --legacy-peer-deps", stderr: "try --legacy-peer-deps", reason: "try --legacy-peer-deps"},
		"nothing":            {line: "false"},
	} {
		t.Run(name, func(t *testing.T) {
			reason, next := setup.Explain(&env.SetupError{Line: c.line, Result: env.Result{
				Stdout: env.Output{Head: []byte(c.stdout)}, Stderr: env.Output{Head: []byte(c.stderr)},
			}})
			if reason != c.reason || next != c.next {
				t.Errorf("%q and %q, want %q and %q", reason, next, c.reason, c.next)
			}
		})
	}
}
