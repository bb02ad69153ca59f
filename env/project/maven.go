package project

import (
	"encoding/xml"
	"path/filepath"
	"strings"

	"deepswe/env"
	"deepswe/env/disk"
)

type pom struct {
	Group      string     `xml:"groupId"`
	Version    string     `xml:"version"`
	Parent     artifact   `xml:"parent"`
	Properties properties `xml:"properties"`
	Needs      []artifact `xml:"dependencies>dependency"`
}

type artifact struct {
	Group    string  `xml:"groupId"`
	Name     string  `xml:"artifactId"`
	Version  string  `xml:"version"`
	Scope    string  `xml:"scope"`
	Relative *string `xml:"relativePath"`
}

// properties are the elements of <properties>, by name.
type properties map[string]string

// UnmarshalXML implements xml.Unmarshaler.
func (p *properties) UnmarshalXML(d *xml.Decoder, start xml.StartElement) error {
	var all struct {
		Each []struct {
			XMLName xml.Name
			Value   string `xml:",chardata"`
		} `xml:",any"`
	}
	if err := d.DecodeElement(&all, &start); err != nil {
		return err
	}
	*p = properties{}
	for _, e := range all.Each {
		(*p)[e.XMLName.Local] = strings.TrimSpace(e.Value)
	}
	return nil
}

// java is due where a parent or a dependency of the project is missing among what Maven has downloaded.
func java(t tree, m Machine) (Step, bool) {
	if m.Home == "" || !t.has("pom.xml") {
		return Step{}, false
	}
	local := filepath.Join(m.Home, ".m2", "repository")
	missing := "~/.m2/repository"
	if exists(local) {
		if missing = t.missingArtifact(local); missing == "" {
			return Step{}, false
		}
	}
	// Only a run of the tests downloads the test runner; dependency:go-offline does not.
	command := m.maven(t) +
		" -B -Denforcer.skip=true -Dmaven.test.failure.ignore=true -Dsurefire.timeout=60 test"
	return Step{Command: command, Lock: "pom.xml", Missing: missing}, true
}

// maven returns the program that runs Maven: the version that a set-up has installed because the machine's is too old,
// or the project's own script where the machine has none.
func (m Machine) maven(t tree) string {
	if installed := disk.Glob(t.path(env.Caches), "apache-maven-*/bin/mvn"); len(installed) > 0 {
		return strings.TrimPrefix(installed[0], t.path("")+"/")
	}
	if m.lacks("mvn") && t.has("mvnw") {
		return "./mvnw"
	}
	return "mvn"
}

// olderSurefire is a version of Surefire that still runs tests of a JUnit before 4.12.
const olderSurefire = "3.5.6"

// OlderSurefireTest are the goals of Maven that run the tests with an older Surefire, where the latest one is too new
// for the project's JUnit.
const OlderSurefireTest = "test-compile org.apache.maven.plugins:maven-surefire-plugin:" + olderSurefire + ":test"

// mavenTest returns the goals of Maven that run the tests: [OlderSurefireTest] if a set-up has installed that version.
func (t tree) mavenTest() string {
	const installed = "m2/org/apache/maven/plugins/maven-surefire-plugin/" + olderSurefire + "/*.jar"
	if len(disk.Glob(t.path(env.Caches), installed)) > 0 {
		return OlderSurefireTest
	}
	return "test"
}

// property matches what stands for a property's value.
var property = env.Pattern(`\$\{([^}]+)\}`)

// missingArtifact returns the first artifact that a build certainly needs and that is not in Maven's repository;
// empty if there is none. It does not look for those whose version another file decides.
func (t tree) missingArtifact(repository string) string {
	var p pom
	if xml.Unmarshal(t.read("pom.xml"), &p) != nil {
		return ""
	}
	value := func(text string) string {
		return property().ReplaceAllStringFunc(strings.TrimSpace(text), func(name string) string {
			switch key := name[2 : len(name)-1]; key {
			case "project.version":
				return p.Version
			case "project.groupId":
				return p.Group
			default:
				if v := p.Properties[key]; !strings.Contains(v, "$") {
					return v
				}
				return ""
			}
		})
	}
	needs := p.Needs
	if p.Parent.Relative == nil || strings.TrimSpace(*p.Parent.Relative) == "" {
		if !exists(filepath.Join(filepath.Dir(string(t)), "pom.xml")) {
			needs = append([]artifact{p.Parent}, needs...)
		}
	}
	for _, a := range needs {
		group, name, version := value(a.Group), value(a.Name), value(a.Version)
		if group == "" || name == "" || version == "" || a.Scope == "system" || strings.ContainsAny(version, "[(,$") ||
			version == p.Version { // a module of the project itself
			continue
		}
		if !exists(filepath.Join(repository, strings.ReplaceAll(group, ".", "/"), name, version)) {
			return group + ":" + name + ":" + version
		}
	}
	return ""
}
