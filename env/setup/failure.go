package setup

import (
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
)

// telling match the line that matters in what a command has printed before it failed, the surest first.
var telling = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^npm (?:error|ERR!) (peer \S.* from \S.*)$`),
	regexp.MustCompile(`(?m)^npm (?:error|ERR!) ([^\s c].*|c[^o].*)$`), // not its code
	regexp.MustCompile(`(?m)(ERR_PNPM_\w+.*|YN\d{4}: .*)$`),
	regexp.MustCompile(`(?m)^ *(?:ERROR|[Ee]rror):? (.+)$`),
	regexp.MustCompile(`(?m)^(?:\x1b\[[\d;]*m)*\[(?:\x1b\[[\d;]*m)*ERROR(?:\x1b\[[\d;]*m)*\] (.+)$`), // Maven
}

// remedies are what tools suggest where they have failed: what they say, the part of the command, and what to put in
// its place. Without a part, it is added at the end.
var remedies = []struct {
	sign     *regexp.Regexp
	old, new string
}{
	{regexp.MustCompile(`--legacy-peer-deps`), "", " --legacy-peer-deps"},
	{regexp.MustCompile(`npm ci.* can only install`), "npm ci", "npm install"},
	{regexp.MustCompile(`ERR_PNPM_OUTDATED_LOCKFILE`), "--frozen-lockfile", "--no-frozen-lockfile"},
	{regexp.MustCompile(`lockfile needs to be updated`), " --frozen-lockfile", ""},
	{regexp.MustCompile(`YN0028`), "--immutable", "--no-immutable"},
	{regexp.MustCompile(`--locked was passed`), " --locked", ""},
	{regexp.MustCompile(`maven-enforcer-plugin.*enforce`), "", " -Denforcer.skip=true"},
	{regexp.MustCompile(`pyproject\.toml changed significantly`), "poetry install", "poetry lock && poetry install"},
}

// Explain returns the line that matters in the output of a command that has failed, and the command to try next, where
// the tool suggests one; empty otherwise.
func Explain(e *env.SetupError) (reason, next string) {
	r := e.Result
	said := string(slices.Concat(r.Stdout.Head, r.Stdout.Tail, []byte("\n"), r.Stderr.Head, r.Stderr.Tail))
	for _, pattern := range telling {
		if m := pattern.FindStringSubmatch(said); m != nil {
			reason = m[1]
			break
		}
	}
	if lines := strings.Split(strings.TrimSpace(said), "\n"); reason == "" {
		reason = lines[len(lines)-1]
	}
	for _, remedy := range remedies {
		if !remedy.sign.MatchString(said) || !strings.Contains(e.Line, remedy.old) ||
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
