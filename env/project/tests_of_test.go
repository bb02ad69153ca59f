package project

import (
	"path/filepath"
	"strings"
	"testing"

	"deepswe/env/testkit"
)

// TestTestCommandsOf: only the patch's tests run, if the runner can do that, and on the old code only those of them
// that exist.
func TestTestCommandsOf(t *testing.T) {
	const wrapper = "distributionBase=GRADLE_USER_HOME\ndistributionUrl=https\\://x/gradle-8.5-bin.zip\n"
	for name, c := range map[string]struct {
		repo          []string // names and contents
		files         string
		patched, base string
	}{
		"pytest": {
			[]string{"setup.py", "", "tests/test_a.py", "", "package.json", `{"scripts": {"test": "jest"}}`},
			"tests/test_a.py tests/test_new.py tests/data.json tests/conftest.py",
			"python3 -m pytest tests/test_a.py tests/test_new.py", "python3 -m pytest tests/test_a.py",
		},
		"unittest": {
			[]string{"test_a.py", "import unittest\n"}, "test_b.py", "python3 -m unittest -v test_b.py", "",
		},
		"tests beside what they test": {
			[]string{"setup.py", "", "calc/tests/test_a.py", ""}, "calc/tests/test_a.py calc/tests/test_b.py calc/tests/data.py",
			"python3 -m pytest calc/tests/test_a.py calc/tests/test_b.py", "python3 -m pytest calc/tests/test_a.py",
		},
		"unittest in a folder": {
			[]string{"a/tests/test_a.py", "import unittest\n"}, "a/tests/test_a.py",
			"python3 -m unittest -v a/tests/test_a.py", "python3 -m unittest -v a/tests/test_a.py",
		},
		"django": {
			[]string{"manage.py", "import django", "shop/tests.py", "", "requirements.txt", "django"},
			"shop/tests.py shop/orders/tests/test_a.py shop/data.json",
			"python3 manage.py test -v 2 --noinput shop.orders.tests.test_a shop.tests",
			"python3 manage.py test -v 2 --noinput shop.tests",
		},
		"django below": {
			[]string{"src/manage.py", "import django", ".venv/bin/python", ""}, "src/shop/tests/test_a.py",
			"(cd src && ../.venv/bin/python manage.py test -v 2 --noinput shop.tests.test_a)", "",
		},
		"django by pytest": {
			[]string{"manage.py", "import django", "setup.cfg", "[tool:pytest]\nDJANGO_SETTINGS_MODULE = a.b\n"}, "shop/tests.py",
			"python3 -m pytest shop/tests.py", "",
		},
		"django itself": {
			[]string{"tests/runtests.py", "import django", "setup.py", "", "tests/forms/tests.py", ""},
			"tests/forms/tests.py tests/forms/widget_tests/test_a.py django/test/a.py",
			"python3 tests/runtests.py --verbosity 2 --parallel 1 forms.tests forms.widget_tests.test_a",
			"python3 tests/runtests.py --verbosity 2 --parallel 1 forms.tests",
		},
		"go": {
			[]string{"go.mod", "module m", "a/a.go", ""}, "x_test.go a/a_test.go a/testdata/x new/new_test.go",
			"go test -v ./ ./a ./new", "go test -v ./ ./a",
		},
		"go, another module": {
			[]string{"go.mod", "module m", "b/go.mod", "", "b/c/c.go", ""}, "b/c/c_test.go",
			"(cd b && go test -v ./c)", "(cd b && go test -v ./c)",
		},
		"go, two modules": {
			[]string{"go.mod", "module m", "b/go.mod", ""}, "a_test.go b/b_test.go", "go test -v ./...", "go test -v ./...",
		},
		"a package below": {
			[]string{"package.json", `{"scripts": {"test": "mocha"}}`, "p/a/package.json", `{"scripts": {"test": "jest"}}`},
			"p/a/src/a.test.js", "(cd p/a && npx --no-install jest --verbose src/a.test.js)", "",
		},
		"a package below, without a runner": {
			[]string{"package.json", `{"scripts": {"test": "mocha"}}`, "test/package.json", `{"type": "module"}`},
			"test/a.js", "npx --no-install mocha test/a.js", "",
		},
		"a package below, with the environment above": {
			[]string{"pyproject.toml", "", ".venv/bin/python", "", "p/a/setup.py", "", "p/a/tests/test_a.py", ""},
			"p/a/tests/test_a.py", "(cd p/a && ../../.venv/bin/python -m pytest tests/test_a.py)",
			"(cd p/a && ../../.venv/bin/python -m pytest tests/test_a.py)",
		},
		"vitest": {
			[]string{"package.json", `{"scripts": {"test": "pnpm lint && vitest run"}}`}, "test/a b.test.ts test/data.json",
			"npx --no-install vitest run --reporter=verbose test/a b.test.ts", "",
		},
		"node": {
			[]string{"package.json", `{"scripts": {"test": "node --no-warnings --test test/"}}`, "test/a.test.js", ""},
			"test/a.test.js test/helper.js", "node --test test/a.test.js", "node --test test/a.test.js",
		},
		"mocha": {
			[]string{"package.json", `{"scripts": {"test": "nyc mocha --require x test"}}`}, "test/a.test.js lib/test.txt",
			"npx --no-install mocha --require x test/a.test.js", "",
		},
		"mocha, of compiled tests": {
			[]string{"package.json", `{"scripts": {"test": "mocha \"out/**/*.spec.js\" -s 0"}}`}, "src/a.spec.ts src/b/c.spec.ts",
			"npx --no-install mocha $(ls out/src/a.spec.js out/a.spec.js out/src/b/c.spec.js out/b/c.spec.js 2>/dev/null)", "",
		},
		"mocha 1": {
			[]string{"package.json", `{"scripts": {"test": "mocha"}}`, "node_modules/mocha/bin/mocha", "{ customFds: [0,1,2] }"},
			"test/a.test.js", "npx --no-install _mocha test/a.test.js", "",
		},
		"tests known by their folder": {
			[]string{"package.json", `{"scripts": {"test": "npm run lint && npm run ci", "ci": "mocha"}}`}, "test/cors.js lib/a.js",
			"npx --no-install mocha test/cors.js", "",
		},
		"a runner known by the dependencies": {
			[]string{"package.json", `{"scripts": {"test": "ts-scripts test"}, "devDependencies": {"vitest": "^4"}}`},
			"src/a.spec.ts", "npx --no-install vitest run --reporter=verbose src/a.spec.ts", "",
		},
		"node, with what loads TypeScript": {
			[]string{"package.json", `{"scripts": {"test": "rm -r x && node -C y --import=tsx/esm --test && tsd -r z"}}`},
			"test/a.ts", "node --test -C y --import=tsx/esm test/a.ts", "",
		},
		"tsx": {
			[]string{"package.json", `{"scripts": {"test": "tsx --test test/*.ts"}}`}, "test/a.ts",
			"npx --no-install tsx --test test/a.ts", "",
		},
		"mocha, loading by what calls it": {
			[]string{"package.json", `{"scripts": {"test": "nyc -r lcov --require x mocha -r y"}}`}, "test/a.test.js",
			"npx --no-install mocha --require x -r y test/a.test.js", "",
		},
		"jest, with what its script sets": {
			[]string{"package.json", `{"scripts": {"test": "cross-env NODE_OPTIONS=\"--a b\" TZ=UTC jest -u --config=x.json"}}`},
			"a.test.js", `NODE_OPTIONS="--a b" TZ=UTC npx --no-install jest --verbose --config=x.json a.test.js`, "",
		},
		"jest, run by another script in some time zone": {
			[]string{"package.json", `{"scripts": {"a": "jest -u", "test": "TZ=A npm run -s tz && jest", "tz": "date && B=c jest"}}`},
			"a.test.js", "TZ=A B=c npx --no-install jest --verbose a.test.js", "",
		},
		"scripts that run each other": {
			[]string{"package.json", `{"scripts": {"test": "npm run a", "a": "npm test", "b": "vitest --globals -c a.config.ts"}}`},
			"a.test.js", "npx --no-install vitest run --reporter=verbose --globals -c a.config.ts a.test.js", "",
		},
		"mocha, with an interface": {
			[]string{"package.json", `{"scripts": {"test": "NODE_ENV=test mocha -u tdd --exit -t 5 test"}}`}, "test/a.js",
			"NODE_ENV=test npx --no-install mocha -u tdd --exit test/a.js", "",
		},
		"ava": {
			[]string{"package.json", `{"scripts": {"test": "xo && ava"}}`}, "test.js", "npx --no-install ava --tap test.js", "",
		},
		"tape": {
			[]string{"package.json", `{"scripts": {"test": "npm run only", "only": "nyc tape -r x 'test/**' | tap-spec"}}`},
			"test/a.js test/helper.js", "npx --no-install tape -r x test/a.js", "",
		},
		"tap": {
			[]string{"package.json", `{"scripts": {"test": "tap -R tap"}, "devDependencies": {"tap": "^16"}}`}, "test/a.js",
			`(status=0; for t in test/a.js; do echo "# Subtest: $t"; if node "$t"; then echo "ok - $t"; ` +
				`else echo "not ok - $t"; status=1; fi; done; exit $status)`, "",
		},
		"tests that are programs, with a variable": {
			[]string{"package.json", `{"scripts": {"test": "A=1 node test"}}`}, "test/a.js",
			`(export A=1; status=0; for t in test/a.js; do echo "# Subtest: $t"; if node "$t"; then echo "ok - $t"; ` +
				`else echo "not ok - $t"; status=1; fi; done; exit $status)`, "",
		},
		"tests that are programs": {
			[]string{"package.json", `{"scripts": {"test": "node -r x test.js"}}`}, "test.js",
			`(status=0; for t in test.js; do echo "# Subtest: $t"; if node -r x "$t"; then echo "ok - $t"; ` +
				`else echo "not ok - $t"; status=1; fi; done; exit $status)`, "",
		},
		"no runner that is known": {
			[]string{"package.json", `{"scripts": {"test": "make"}}`}, "test/a.test.js", "npm test", "npm test",
		},
		"rspec": {
			[]string{"Gemfile", "", "spec/x", ""}, "spec/a_spec.rb",
			"$(bundle check >/dev/null 2>&1 && echo bundle exec) rspec spec/a_spec.rb", "",
		},
		"rspec, in one gem of several": {
			[]string{"Gemfile", "", "b/b.gemspec", "", "b/spec/x", ""}, "b/spec/a_spec.rb",
			"(cd b && $(bundle check >/dev/null 2>&1 && echo bundle exec) rspec spec/a_spec.rb)", "",
		},
		"test-unit": {
			[]string{"test/helper.rb", `require "test/unit"`}, "test/csv/test_a.rb",
			"ruby -Ilib -Itest -e ARGV.grep(/rb$/) { |f| require \"./\" + f } test/csv/test_a.rb --verbose=verbose", "",
		},
		"minitest, named as what tests load": {
			nil, "test/spec_utils.rb test/test_helper.rb test/utils.rb test/utils_test.rb",
			"ruby -Ilib -Itest -e ARGV.grep(/rb$/) { |f| require \"./\" + f } test/spec_utils.rb test/utils_test.rb -v --seed=1", "",
		},
		"minitest": {
			[]string{"test/test_a.rb", "", "test/helper.rb", ""}, "test/test_a.rb test/helper.rb test/spec_b.rb lib/test.rb",
			"ruby -Ilib -Itest -e ARGV.grep(/rb$/) { |f| require \"./\" + f } test/test_a.rb test/spec_b.rb -v --seed=1",
			"ruby -Ilib -Itest -e ARGV.grep(/rb$/) { |f| require \"./\" + f } test/test_a.rb -v --seed=1",
		},
		"cargo": {
			[]string{"Cargo.toml", "", "tests/a.rs", ""}, "tests/a.rs tests/b.rs",
			"cargo test --manifest-path Cargo.toml --test a --test b", "cargo test --manifest-path Cargo.toml --test a",
		},
		"cargo, tests in the sources of a member": {
			[]string{"Cargo.toml", "[workspace]", "a/Cargo.toml", "", "a/src/lib.rs", ""}, "a/src/lib.rs a/tests/b.rs",
			"cargo test --manifest-path a/Cargo.toml", "cargo test --manifest-path a/Cargo.toml",
		},
		"cargo, a module of tests": {[]string{"Cargo.toml", ""}, "src/tests.rs", "cargo test", "cargo test"},
		"maven": {
			[]string{"pom.xml", "", "src/test/java/a/ATest.java", ""},
			"src/test/java/a/ATest.java core/src/test/java/b/BTest.java src/test/resources/x",
			"mvn -B test -Dtest=ATest,BTest -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false -am -pl core",
			"mvn -B test -Dtest=ATest -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false",
		},
		"maven, newer than the machine's": {
			[]string{"pom.xml", "", ".deps/apache-maven-3.9.11/bin/mvn", ""}, "src/test/java/a/ATest.java",
			".deps/apache-maven-3.9.11/bin/mvn -B test -Dtest=ATest -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false", "",
		},
		"maven, with a Surefire that knows an old JUnit": {
			[]string{"pom.xml", "", ".deps/m2/org/apache/maven/plugins/maven-surefire-plugin/3.5.6/a.jar", ""},
			"src/test/java/a/ATest.java", "mvn -B test-compile org.apache.maven.plugins:maven-surefire-plugin:3.5.6:test " +
				"-Dtest=ATest -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false", "",
		},
		"gradle": {
			[]string{"build.gradle", "", "src/test/java/a/ATest.java", ""},
			"src/test/java/a/ATest.java core/api/src/test/java/b/BTest.java src/test/resources/x src/test/java/a/CTest.java",
			"gradle --console=plain :test --tests a.ATest --tests a.CTest :core:api:test --tests b.BTest",
			"gradle --console=plain :test --tests a.ATest",
		},
		"gradle, its own": {
			[]string{"settings.gradle.kts", "", "gradlew", ""}, "src/test/java/ATest.java",
			"./gradlew --console=plain :test --tests ATest", "",
		},
		"gradle, its own from a set-up": {
			[]string{"build.gradle", "", "gradlew", "", "gradle/wrapper/gradle-wrapper.properties", wrapper,
				".deps/gradle/wrapper/dists/gradle-8.5-bin/h/gradle-8.5-bin.zip.ok", ""}, "src/test/java/ATest.java",
			"./gradlew --console=plain :test --tests ATest", "",
		},
		"gradle, its own cannot be had": {
			[]string{"build.gradle", "", "gradlew", "", "gradle/wrapper/gradle-wrapper.properties", wrapper,
				".deps/gradle/caches/x", ""}, "src/test/java/ATest.java", "gradle --console=plain :test --tests ATest", "",
		},
		"gradle, tests elsewhere": {
			[]string{"build.gradle", ""}, "src/test/groovy/ASpec.groovy", "gradle --console=plain test", "gradle --console=plain test",
		},
		"phpunit": {
			[]string{"composer.json", "", "vendor/bin/phpunit", "", "tests/ATest.php", ""}, "tests/ATest.php tests/BTest.php",
			"vendor/bin/phpunit --colors=never", "vendor/bin/phpunit --colors=never tests/ATest.php",
		},
		"phpunit of the machine": {
			[]string{"composer.json", "", "vendor/autoload.php", ""}, "tests/ATest.php",
			"phpunit --bootstrap vendor/autoload.php --colors=never tests/ATest.php", "",
		},
		"phpunit of the machine, with a bootstrap": {
			[]string{"composer.json", "", "vendor/autoload.php", "", "phpunit.xml.dist", `<phpunit bootstrap="tests/b.php">`},
			"tests/ATest.php", "phpunit --colors=never tests/ATest.php", "",
		},
		"ctest": {
			[]string{"CMakeLists.txt", "option(A_TESTS \"\" OFF)\noption(A_TEST_WITH_VALGRIND \"\" OFF)"}, "tests/a.c",
			"cmake -S . -B /tmp/build -DBUILD_TESTING=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DA_TESTS=ON && { " +
				"cmake --build /tmp/build -j 4 $([ -e /tmp/build/Makefile ] && echo -- -k); " +
				"ctest --test-dir /tmp/build --output-on-failure; }",
			"cmake -S . -B /tmp/build -DBUILD_TESTING=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DA_TESTS=ON && { " +
				"cmake --build /tmp/build -j 4 $([ -e /tmp/build/Makefile ] && echo -- -k); " +
				"ctest --test-dir /tmp/build --output-on-failure; }",
		},
		"ctest, of a project that can leave out its tests": {
			[]string{"CMakeLists.txt", "option(A_WITHOUT_TESTS \"\" ON)"}, "tests/a.c",
			"cmake -S . -B /tmp/build -DBUILD_TESTING=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DA_WITHOUT_TESTS=OFF && { " +
				"cmake --build /tmp/build -j 4 $([ -e /tmp/build/Makefile ] && echo -- -k); " +
				"ctest --test-dir /tmp/build --output-on-failure; }",
			"cmake -S . -B /tmp/build -DBUILD_TESTING=ON -DCMAKE_POLICY_VERSION_MINIMUM=3.5 -DA_WITHOUT_TESTS=OFF && { " +
				"cmake --build /tmp/build -j 4 $([ -e /tmp/build/Makefile ] && echo -- -k); " +
				"ctest --test-dir /tmp/build --output-on-failure; }",
		},
		"nothing": {nil, "tests/a.sh", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i := 0; i+1 < len(c.repo); i += 2 {
				testkit.WriteFile(t, filepath.Join(dir, c.repo[i]), c.repo[i+1])
			}
			files := strings.Fields(c.files)
			if name == "vitest" {
				files = []string{"test/a b.test.ts", "test/data.json"}
			}
			plain := func(command string) string { return strings.ReplaceAll(command, "'", "") }
			patched, base := TestCommandsOf(dir, Machine{}, nil, files)
			if plain(patched) != c.patched || plain(base) != c.base {
				t.Errorf("%q and %q, want %q and %q", patched, base, c.patched, c.base)
			}
		})
	}
}

// Files in a test folder are tests, unless they or their folders are named like helpers.
func TestInTestFolder(t *testing.T) {
	for name, want := range map[string]bool{
		"test/parse.js": true, "test/functions/inc.mjs": true, "packages/a/__tests__/b/c.tsx": true, "test/utils.js": true,
		"test/common.js": true, "test/helper.js": false, "test/support/env.js": false, "test/test-utils.js": false,
		"test/index.test-d.ts": false, "test/types.d.ts": false, "test/data.json": false, "lib/parse.js": false,
		"tests/typecheck-tests.ts": false, "test/type-tests/a.ts": false, "test/type-check.test.ts": true,
	} {
		if got := InTestFolder(name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}
