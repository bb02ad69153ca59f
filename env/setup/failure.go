package setup

import (
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/project"
)

// telling match the line that matters in what a command has printed before it failed, the surest first.
var telling = env.Patterns(
	`(?m)^npm (?:error|ERR!) (peer \S.* from \S.*)$`,
	`(?m)^npm (?:error|ERR!) ([^\s c].*|c[^o].*)$`, // not its code
	`(?m)(ERR_PNPM_\w+.*|YN\d{4}: .*)$`,
	`(?m)^ *(?:ERROR|[Ee]rror):? (.+)$`,
	`(?m)^(?:\x1b\[[\d;]*m)*\[(?:\x1b\[[\d;]*m)*ERROR(?:\x1b\[[\d;]*m)*\] ((?:[^C]|C[^O]).*)$`, // Maven
	`(?m)^ *> (Could not (?:find|resolve) \S+:.*)$`, `(?m)^\* What went wrong:\n(.+)$`,         // Gradle
	`(?m)^    - (\S.*(?:does not satisfy|missing from your system|could not be found|conflict).*)$`, // Composer
	`(?m)^In \S+ line \d+:\s*\n\s+(\S.*)$`,                                                          // Composer
	`(?m)^--- ERROR REPORT TEMPLATE -+\s+`+"```"+`\w*\s+(\S.*)$`,                                    // Bundler
)

// cannotBeHad matches npm's output if a repository, a package or a version of it is gone, or where a host of
// repositories does not answer.
const cannotBeHad = `(?m)^npm (?:error|ERR!) (?:code (?:128|E404|ETARGET|ENOVERSIONS|EUNSUPPORTEDPROTOCOL)$|` +
	`.*(?:- GET|request to) https://(?:\w+\.)?(?:github|gitlab|bitbucket)\.)`

// remedies are what helps after a tool has failed: what the tool says, the part of the command to replace, and its
// replacement. If there is no part, the replacement is appended.
var remedies = []struct {
	sign     func() *regexp.Regexp
	old, new string
}{
	{env.Pattern(`--legacy-peer-deps`), "", " --legacy-peer-deps"},
	{env.Pattern(`npm ci.* can only install`), "npm ci", "npm install"},
	{env.Pattern(cannotBeHad), "npm ci", narrowedInstall},
	{env.Pattern(cannotBeHad), project.NpmInstall, narrowedInstall},
	{env.Pattern(`(?m)^npm (?:error|ERR!) command failed$`), "", lenientScripts},
	{env.Pattern(`ERR_PNPM_OUTDATED_LOCKFILE`), "--frozen-lockfile", "--no-frozen-lockfile"},
	{env.Pattern(`lockfile needs to be updated`), " --frozen-lockfile", ""},
	{env.Pattern(`engine "\w+" is incompatible with this module`), "", " --ignore-engines"}, // as other managers do anyway
	{env.Pattern(`YN0028`), "--immutable", "--no-immutable"},
	{env.Pattern(`--locked was passed`), " --locked", ""},
	// A test has ended its JVM, or the system did: all that tests need was there already.
	{env.Pattern(`The forked VM terminated without`), "", " || find . -path '*/surefire-reports/*.xml' | grep -q ."},
	// A plugin is too new for this Maven, which then gets the one that the tests are run with, too.
	{env.Pattern(`The plugin \S+ requires Maven version`), "mvn -B", "mvn -B -N " +
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack " +
		"-Dartifact=org.apache.maven:apache-maven:3.9.11:tar.gz:bin -DoutputDirectory=" + env.Caches +
		" && " + env.Caches + "/apache-maven-3.9.11/bin/mvn -B"},
	// A project that names no version of Surefire gets the latest one, which is too new for its JUnit.
	{env.Pattern(`The used JUnit Version \S+ is not supported any ?more`), " test", " " + project.OlderSurefireTest},
	// The project's own Gradle cannot be downloaded, or its script lacks a part.
	{env.Pattern(`\borg[./]gradle[./]wrapper\b`), "./gradlew ", "gradle "},
	// Corepack verifies the signature of the package manager. A company's registry may lack it, and an old corepack lacks
	// the key. Without that check, the download is as trustworthy as one by npx.
	{env.Pattern(`No compatible signature found|Cannot find matching keyid`),
		"corepack ", "COREPACK_INTEGRITY_KEYS=0 corepack "},
	// A pnpm that is older than Node 20 cannot download with it. The last pnpm 7 can, and reads the same lock files.
	{env.Pattern(`ERR_INVALID_THIS`), "corepack pnpm ", "corepack pnpm@7.33.7 "},
	// That this PHP is too new for an old project is ignored, but not that it is too old for a new package.
	{env.Pattern(`you can run Composer with .--ignore-platform-req|does not satisfy that requirement`),
		"", " --ignore-platform-req=php+ --ignore-platform-req='ext-*'"},
	{env.Pattern(`blocked by your allow-plugins config`), "", " --no-plugins"},
	{env.Pattern(`(?i)please run .?composer update`), "composer install", "composer update"},
	{env.Pattern(pinFails), project.PipInstall, loosenedInstall},
	{env.Pattern(`pyproject\.toml changed significantly`), "poetry install", "poetry lock && poetry install"},
}

// Printed returns the output of a command that has failed, as far as it was kept.
func Printed(e *env.SetupError) string {
	r := e.Result
	return string(slices.Concat(r.Stdout.Head, r.Stdout.Tail, []byte("\n"), r.Stderr.Head, r.Stderr.Tail))
}

// Explain returns the line that matters in the output of a command that has failed, and the command to try next, where
// the tool suggests one; empty otherwise.
func Explain(e *env.SetupError) (reason, next string) {
	said := Printed(e)
	for _, pattern := range telling() {
		if m := pattern.FindStringSubmatch(said); m != nil {
			reason = m[1]
			break
		}
	}
	if lines := strings.Split(strings.TrimSpace(said), "\n"); reason == "" {
		reason = lines[len(lines)-1]
	}
	for _, remedy := range remedies {
		if !remedy.sign().MatchString(said) || !strings.Contains(e.Line, remedy.old) ||
			remedy.old == "" && strings.Contains(e.Line, remedy.new) {
			continue
		}
		if next = e.Line + remedy.new; remedy.old != "" {
			next = strings.Replace(e.Line, remedy.old, remedy.new, 1)
		}
		break
	}
	return strings.TrimSpace(reason), next
}
