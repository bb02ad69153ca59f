package project

import (
	"maps"
	"path/filepath"
	"testing"

	"deepswe/env/testkit"
)

// TestRuby: gems are due if most of them are missing where Bundler looks for them.
func TestRuby(t *testing.T) {
	const lock = `GEM
  remote: https://rubygems.org/
  specs:
    minitest (99.1)
    nokogiri (98.2-x86_64-linux)
    nokogiri (98.2-x86_64-darwin)
      racc (~> 1)
    rack (97.3)
    racc (96.4)

PLATFORMS
  x86_64-linux
`
	const rack, nokogiri = "ruby/3.1.0/gems/rack-97.3/x", "ruby/3.1.0/specifications/nokogiri-98.2-x86_64-linux.gemspec"
	for name, c := range map[string]struct {
		project, home []string // files, without their contents
		local, user   string   // Bundler's settings
		variable      string   // BUNDLE_PATH
		due           bool
	}{
		"nothing installed":          {due: true},
		"one comes with Ruby":        {home: []string{".gem/ruby/3.1.0/gems/minitest-99.1/x"}, due: true},
		"another version":            {home: []string{".gem/ruby/3.1.0/gems/rack-97.2/x", ".gem/" + nokogiri}, due: true},
		"most on the machine":        {home: []string{".gem/" + rack, ".gem/" + nokogiri}},
		"in the project":             {project: []string{"vendor/bundle/" + rack, "vendor/bundle/" + nokogiri}},
		"an empty directory":         {project: []string{"vendor/bundle/x"}, due: true},
		"where the project wants it": {project: []string{"gems/" + rack, "gems/" + nokogiri}, local: "gems"},
		"settings and no gems":       {local: "gems", home: []string{".gem/" + rack, ".gem/" + nokogiri}, due: true},
		"outside, by the project":    {local: "~/gems", home: []string{"gems/" + rack, "gems/" + nokogiri}, due: true},
		"outside, by the user":       {user: "~/gems", home: []string{"gems/" + rack, "gems/" + nokogiri}},
		"inside, by the user":        {variable: "gems", user: "other", project: []string{"gems/" + rack, "gems/" + nokogiri}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, home := t.TempDir(), t.TempDir()
			testkit.WriteFile(t, filepath.Join(dir, "Gemfile.lock"), lock)
			for base, setting := range map[string]string{dir: c.local, home: c.user} {
				if setting != "" {
					testkit.WriteFile(t, filepath.Join(base, ".bundle/config"), "---\nBUNDLE_PATH: \""+setting+"\"\n")
				}
			}
			for base, files := range map[string][]string{dir: c.project, home: c.home} {
				for _, name := range files {
					testkit.WriteFile(t, filepath.Join(base, name), "")
				}
			}
			variables := map[string]string{"HOME": home, "BUNDLE_PATH": c.variable}
			m := FindMachine(func(key string) string { return variables[key] })
			if step, due := ruby(tree(dir), m); due != c.due {
				t.Errorf("due: %v, missing %q", due, step.Missing)
			}
		})
	}
}

func TestBundler(t *testing.T) {
	home := t.TempDir()
	testkit.WriteFile(t, filepath.Join(home, ".bundle/config"),
		"---\nBUNDLE_PATH: \"~/gems\"\nBUNDLE_WITHOUT: \"production:ci\"\nBUNDLE_GEMS__EXAMPLE__COM: \"me:secret\"\n")
	got := Bundler(home, func(key string) string { return map[string]string{"BUNDLE_WITHOUT": "docs"}[key] })
	want := map[string]string{"BUNDLE_PATH": filepath.Join(home, "gems"), "BUNDLE_WITHOUT": "docs"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
