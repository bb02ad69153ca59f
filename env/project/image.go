package project

// Image returns an image on Docker Hub, with an exact version, that has the tools for the kind of project in the
// directory.
func Image(dir string) string {
	t := tree(dir)
	for _, kind := range []struct{ file, image string }{
		{"go.mod", "golang:1.24.5-bookworm"},
		{"Cargo.toml", "rust:1.88.0-bookworm"},
		{"pom.xml", "maven:3.9.11-eclipse-temurin-21"},
		{"build.gradle", "gradle:8.14.3-jdk21"},
		{"build.gradle.kts", "gradle:8.14.3-jdk21"},
		{"Gemfile", "ruby:3.4.5-bookworm"},
		{"pyproject.toml", "python:3.13.5-bookworm"},
		{"setup.py", "python:3.13.5-bookworm"},
		{"requirements.txt", "python:3.13.5-bookworm"},
		{"package.json", "node:22.17.1-bookworm"},
	} {
		if t.has(kind.file) {
			return kind.image
		}
	}
	return "buildpack-deps:bookworm"
}
