package mine

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"path"
	"slices"
	"strings"

	"deepswe/env"
)

// installs returns the part of a manifest that decides what is installed. What it leaves out describes the project to
// people and other tools, which read it in the commit's own files. In doubt, it keeps what it reads.
func installs(name string, data []byte) []byte {
	switch base := path.Base(name); {
	case base == "package.json" || base == "composer.json":
		return installsJSON(data, base == "package.json")
	case base == "pyproject.toml" || base == "setup.cfg" || base == "Cargo.toml":
		data = installsSections(data)
	case base == "pom.xml":
		data = installsXML(data)
	case path.Ext(base) == ".gemspec":
		data = aboutGem().ReplaceAll(data, nil)
	default: // lock files have the project's own version, too; those of packages they pin by hashes as well
		data = version().ReplaceAll(data, nil)
	}
	return bytes.TrimSpace(data)
}

var (
	// version matches the line of a manifest that states the project's own version.
	version = env.Pattern(`(?m)^\s*"?(__)?version(__)?"?\s*[:=].*$`)
	// about matches what a manifest tells about the project, with the lines that go on with it.
	about = env.Pattern(`(?m)^(?:authors?|author[-_]email|maintainers?|maintainer[-_]email|description|long_description|` +
		`long_description_content_type|keywords|categories|classifiers|license|license[-_]files?|readme|homepage|` +
		`repository|documentation|urls?|project_urls)\s*=.*(?:\n[ \t]+.*|\n[\]}])*`)
	aboutGem = env.Pattern(`(?m)^\s*\w+\.(?:version|date|summary|description|authors?|email|homepage|licenses?|` +
		`metadata\[.*\])\s*=.*$`)
	// section matches the head of a table of TOML, or of a section of setup.cfg.
	section = env.Pattern(`(?m)^\[+([^\]\n]+)\]`)
	// ofProject matches the names of sections about the project itself.
	ofProject = env.Pattern(`^(?:|project|package|workspace\.package|metadata|tool\.poetry)$`)
	// tool matches the names of sections only for programs that check, measure, format or publish the code.
	tool = env.Pattern(`^(?:tool[.:])?(?:black|ruff|isort|flake8|mypy|pylint|pyright|pycodestyle|pydocstyle|pep8|yapf|` +
		`bandit|codespell|docformatter|interrogate|vulture|typos|pytest|coverage|towncrier|commitizen|semantic_release|` +
		`bumpversion|bumpver|cibuildwheel|tox|check-manifest)(?:[.:_-].*)?$|` +
		`^(?:project\.urls|tool\.poetry\.urls|package\.metadata\..*|badges|lints\..*)$`)
)

// installsSections is installs for files of sections: in others than the project's own, a version is that of a package.
func installsSections(data []byte) []byte {
	heads := append([][]int{{0, 0, 0, 0}}, section().FindAllSubmatchIndex(data, -1)...)
	var kept []byte
	for i, head := range heads {
		end := len(data)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		text, name := data[head[0]:end], strings.TrimSpace(string(data[head[2]:head[3]]))
		switch {
		case tool().MatchString(name):
			continue
		case ofProject().MatchString(name):
			text = about().ReplaceAll(version().ReplaceAll(text, nil), nil)
		}
		kept = append(kept, text...)
	}
	return kept
}

// untold returns the fields of package.json and composer.json that do not affect which dependencies are installed.
func untold() []string {
	return strings.Fields(`version description keywords author authors contributors maintainers license licenses homepage
		bugs repository funding support readme main module exports imports types typings files browser unpkg jsdelivr
		sideEffects jest mocha nyc c8 ava xo standard eslintConfig eslintIgnore prettier stylelint babel browserslist
		lint-staged commitlint release size-limit bundlesize publishConfig typesVersions scripts-descriptions`)
}

// lifecycle are the scripts that npm starts as a part of an installation; the others are started by name.
var (
	lifecycle = env.Pattern(`^(?:pre|post)?(?:install|prepare)$|^prepublish$`)
	byName    = env.Pattern(`\b(?:npm|yarn|pnpm|run)\b`)
)

// installsJSON is installs for package.json and composer.json. npm is set for the former, whose scripts are npm's.
func installsJSON(data []byte, npm bool) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return data
	}
	for _, name := range untold() {
		delete(fields, name)
	}
	var scripts map[string]string
	if npm && json.Unmarshal(fields["scripts"], &scripts) == nil &&
		!slices.ContainsFunc(started(scripts), byName().MatchString) {
		delete(fields, "scripts")
		for name, line := range scripts {
			if lifecycle().MatchString(name) {
				fields["script "+name], _ = json.Marshal(line) // a text can be written
			}
		}
	}
	kept, err := json.Marshal(fields)
	if err != nil {
		return data
	}
	return kept
}

// started returns the command lines that an installation starts.
func started(scripts map[string]string) (lines []string) {
	for name, line := range scripts {
		if lifecycle().MatchString(name) {
			lines = append(lines, line)
		}
	}
	return lines
}

// untoldMaven returns the elements of a project in a pom.xml that only describe it.
func untoldMaven() []string {
	return strings.Fields(`version name description url inceptionYear licenses developers contributors organization scm
		mailingLists issueManagement ciManagement distributionManagement`)
}

// installsXML is installs for a pom.xml, whose comments and layout it leaves out as well.
func installsXML(data []byte) []byte {
	var kept bytes.Buffer
	d, to := xml.NewDecoder(bytes.NewReader(data)), xml.NewEncoder(&kept)
	for depth := 0; ; {
		token, err := d.Token()
		if err == io.EOF && to.Flush() == nil {
			return kept.Bytes()
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth == 1 && slices.Contains(untoldMaven(), t.Name.Local) {
				token, err = nil, d.Skip()
				break
			}
			depth++
		case xml.EndElement:
			depth--
		case xml.CharData:
			token = xml.CharData(bytes.TrimSpace(t))
		default:
			token = nil
		}
		if token != nil && err == nil {
			err = to.EncodeToken(token)
		}
		if err != nil { // not valid XML: all of it may matter
			return data
		}
	}
}
