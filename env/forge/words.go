package forge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"deepswe/env"
	"deepswe/env/repo"
)

// apart is a character of no width. Inserted into a reference, it makes that plain text, inside code as well.
const apart = "\u200b"

var (
	// closing matches the words with which forges close issues, before the reference that they close.
	closing = env.Pattern(`(?i)\b(` +
		`clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)\b`)
	// reference matches what names an issue or a pull request, and mention what notifies a person or a team.
	reference   = env.Pattern(`([\w.)-]?)([#!])(\d)|\b(GH-)(\d)`)
	pageAddress = env.Pattern(`(?i)\b(https?:)(//\S+/(?:issues|pull|pulls|merge_requests|work_items)/\d)`)
	mention     = env.Pattern(`(^|[^\w/])@([\w-])`)
	// command matches a line that bots and GitLab take for a command.
	command = env.Pattern(`(?m)^([ \t]*)/([a-z])`)
)

// inert makes generated text, or a project's template, notify nobody and close nothing: it breaks mentions, commands
// and, if the text has a closing word, all references.
func inert(text string) string {
	text = mention().ReplaceAllString(visible(text), "${1}@"+apart+"$2")
	text = command().ReplaceAllString(text, "$1/"+apart+"$2")
	if !closing().MatchString(text) {
		return text
	}
	text = pageAddress().ReplaceAllString(text, "$1"+apart+"$2")
	return reference().ReplaceAllString(text, "$1$2$4"+apart+"$3$5")
}

// places are where a project may keep the template of a pull request's text, as the forges look for it.
var places = []string{"", ".github", "docs", ".gitea", ".forgejo", ".gitlab/merge_request_templates"}

// customs is what a project asks of contributions, as its files at a commit say.
type customs struct {
	template string
	signOff  bool
}

// readCustoms reads the customs of the repository in dir at a commit. Links are not followed.
func readCustoms(ctx context.Context, dir, commit string, kind Kind) (customs, error) {
	var c customs
	files, err := repo.Changes(ctx, dir, repo.EmptyTree, commit)
	if err != nil {
		return c, err
	}
	best := len(places)
	for _, f := range files {
		folder, name := path.Split(strings.ToLower(f.Path))
		folder = strings.TrimSuffix(folder, "/")
		place := slices.Index(places, folder)
		if place < 0 || f.NewMode == repo.ModeLink || f.NewMode == repo.ModeSubmodule {
			continue
		}
		isTemplate := strings.TrimSuffix(name, ".md") == "pull_request_template" && kind != GitLab ||
			name == "default.md" && strings.HasPrefix(folder, ".gitlab") && kind == GitLab
		contributing := strings.HasPrefix(name, "contributing")
		dco := name == "dco" || strings.HasPrefix(name, "dco.")
		if !isTemplate && !contributing && !dco {
			continue
		}
		text, err := repo.Blob(ctx, dir, f.NewBlob)
		if err != nil {
			return c, err
		}
		if isTemplate && place < best {
			best, c.template = place, clean(string(text))
		}
		c.signOff = c.signOff || dco || contributing && signOffAsked().MatchString(string(text))
	}
	return c, nil
}

// signOffAsked matches what contribution guides say if they want the Developer Certificate of Origin.
var signOffAsked = env.Pattern(`(?i)signed-off-by|` +
	`sign[- ]off|developer certificate of origin|git commit (-s|--signoff)`)

// heading matches the headings of a template; the other two select those below which a part of our text goes.
var (
	heading         = env.Pattern(`(?m)^#{1,6} .*$|^\*\*[^*\n]+\*\*:?[ \t]*$`)
	describeHeading = env.Pattern(`(?i)descri|summary|what|change|overview|proposal|motivation|purpose`)
	verifyHeading   = env.Pattern(`(?i)test|verif|check(ed)?\b`)
)

// body returns the text of a pull request: what was done and how it was checked, in the project's template if it has
// one. The only closing word in it is the one for the issue.
func (p *Proposal) body(c customs, closes, branch string) string {
	done := cmp.Or(inert(strings.TrimSpace(p.Summary)), inert(p.Title)+".")
	checked := inert(strings.TrimSpace(p.Verified))
	text := inert(c.template)
	if text == "" {
		text = done + "\n\n**How it was verified:** " + checked
	} else {
		text, done = below(text, describeHeading(), done)
		text, checked = below(text, verifyHeading(), checked)
		if checked != "" {
			checked = "**How it was verified:** " + checked
		}
		text = strings.TrimSpace(strings.TrimSpace(done+"\n\n"+checked) + "\n\n" + text)
	}
	if closes != "" {
		text += "\n\n" + closes
	}
	text += "\n\n---\n" + inert(p.Made)
	return text + "\n<!-- deepswe " + branch + " " + digest(text) + " -->\n"
}

// sealMark matches the end of a text that deepswe wrote for a pull request. It names the branch, so that a later run
// finds its pull request on a forge that keeps no branch. Its digest keeps text that a person has edited from being
// taken for ours.
var sealMark = env.Pattern(`\n<!-- deepswe (\S+) ([0-9a-f]{64}) -->\s*$`)

func digest(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.TrimSpace(text))))
}

// sealed reports whether a text is still as we wrote it.
func sealed(text string) bool {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	m := sealMark().FindStringSubmatchIndex(text)
	return m != nil && digest(text[:m[0]]) == text[m[4]:m[5]]
}

// below inserts a part below the first heading that matches. left is empty then, and the part if there is no such
// heading.
func below(text string, wanted *regexp.Regexp, part string) (with, left string) {
	for _, at := range heading().FindAllStringIndex(text, -1) {
		if wanted.MatchString(text[at[0]:at[1]]) {
			return text[:at[1]] + "\n\n" + part + text[at[1]:], ""
		}
	}
	return text, part
}

// The trailers by which a later run recognises a commit that deepswe made and nobody has changed.
const (
	runTrailer  = "Deepswe-Run: "
	treeTrailer = "Deepswe-Tree: "
)

// message returns the commit's message. It refers to the issue, but does not close it, because commits travel to
// forks.
func (p *Proposal) message(issue, tree string, signOff bool) string {
	text := clip(inert(oneLine(p.Title)), 72) + "\n"
	if p.Summary != "" {
		text += "\n" + inert(strings.TrimSpace(p.Summary)) + "\n"
	}
	text += "\n"
	if issue != "" {
		text += "Issue: " + issue + "\n"
	}
	text += runTrailer + p.Run + "\n" + treeTrailer + tree + "\n"
	if signOff {
		text += fmt.Sprintf("Signed-off-by: %s <%s>\n", p.Name, p.Email)
	}
	return text
}

// ours reports whether a commit was made by a run, and has not been changed since.
func ours(c repo.Logged) bool {
	lines := strings.Split(strings.TrimSpace(c.Message), "\n")
	return slices.Contains(lines, treeTrailer+c.Tree) &&
		slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, runTrailer) })
}
