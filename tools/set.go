package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepswe/env"
)

// Sandbox is the part of env.Sandbox that tools use.
type Sandbox interface {
	Dir() string
	Run(ctx context.Context, c env.Command) (env.Result, error)
	Read(ctx context.Context, path string, o env.ReadOptions) ([]byte, env.FileInfo, error)
	Write(ctx context.Context, path string, data []byte, o env.WriteOptions) (env.FileInfo, error)
	List(ctx context.Context, path string, o env.ListOptions) (env.Listing, error)
	Search(ctx context.Context, q env.Query) (env.Matches, error)
}

// Spec describes a tool to a model. Parameters is a JSON schema, kept verbatim because it is part of the prompt.
type Spec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Call is one use of a tool, as the model wrote it. Args contains every parameter as text: the value of a JSON
// string, or any other JSON value in JSON ("12", "[1, 40]", "true"). All bytes are significant, including leading
// and trailing space.
type Call struct {
	ID   string
	Name string
	Args map[string]string
}

// Result is what the model sees of a call. A failing command, a missing file or a wrong parameter is a Result, not
// an error.
type Result struct {
	// Output is the observation; its length is limited.
	Output string
	// Failed is set if the call did not do what was asked: Output is an error message, or the exit code is not 0.
	Failed bool
	// ExitCode is the command's exit code; nil except for execute_bash.
	ExitCode *int
	// Finished ends the rollout, because the model has submitted. Answer is the model's summary of its work.
	Finished bool
	Answer   string
	// TimedOut, OutOfMemory and OutOfDisk are copied from the sandbox's result of a command.
	TimedOut    bool
	OutOfMemory bool
	OutOfDisk   bool
}

// Options configure a [Set].
type Options struct {
	// CommandTimeout limits each command; 0 means 90 seconds.
	CommandTimeout time.Duration
	// Native selects the set for models that call tools natively; see [New] for what it adds. The default is the
	// reference agent's set, identical in tools and parameters, for models that were trained on it.
	Native bool
}

// Limits of what a model sees of a call, the same as the reference agent's.
const (
	// maxChars limits what is shown of a file, a search or a command's output. It counts bytes of UTF-8, which
	// reflect a text's cost to a model better than characters. Headings and notes add a few lines at most.
	maxChars = 10_000
	// maxLines limits the lines shown of a command's output. It does not apply in a native set.
	maxLines = 80
	// maxFrame is how much longer than maxChars an output may be, for headings and notes.
	maxFrame = 2_000
)

// Set is the tools of one rollout.
type Set struct{ tools []tool }

// tool is a description and the function that runs a call. The function reports the model's mistakes as an
// [observation], which is an error.
type tool struct {
	Spec
	run func(ctx context.Context, sb Sandbox, c Call) (Result, error)
}

// New returns the four tools: file_editor, search, execute_bash and finish.
//
// A native set adds to them: str_replace can replace every occurrence (replace_all) and make several edits at once
// (edits), search accepts regular expressions (regex), find_files finds files by name, and a command's output is
// limited only in characters, with all of it in a file that the result names.
func New(o Options) *Set {
	if o.CommandTimeout <= 0 {
		o.CommandTimeout = 90 * time.Second
	}
	editor := &fileEditor{timeout: o.CommandTimeout, native: o.Native, past: history{}}
	bash := &bash{timeout: o.CommandTimeout, native: o.Native}
	s := &Set{tools: []tool{
		{newSpec("file_editor", fileEditorDescription, fileEditorSchema, o), editor.run},
		{newSpec("search", searchDescription, searchSchema, o), searcher{native: o.Native}.run},
		{newSpec("execute_bash", bashDescription, bashSchema, o), bash.run},
		{newSpec("finish", finishDescription, finishSchema, o), finish},
	}}
	if o.Native {
		s.tools = slices.Insert(s.tools, 2, tool{newSpec("find_files", findDescription, findSchema, o), findFiles})
	}
	return s
}

// Marks of lines that only one of the two sets has.
const (
	nativeMark    = "{{native}}"
	referenceMark = "{{reference}}"
)

// dialect keeps the lines that belong to one set of tools.
func dialect(text string, native bool) string {
	keep, drop := referenceMark, nativeMark
	if native {
		keep, drop = drop, keep
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, drop) {
			b.WriteString(strings.TrimPrefix(line, keep))
		}
	}
	return strings.TrimSpace(b.String())
}

// newSpec fills the limits into a tool's description. The schema is used as it is written.
func newSpec(name, description, schema string, o Options) Spec {
	limits := strings.NewReplacer(
		"{{max_chars}}", count(maxChars),
		"{{max_lines}}", count(maxLines),
		"{{timeout}}", strconv.FormatFloat(o.CommandTimeout.Seconds(), 'f', -1, 64),
		"{{condense_above}}", fmt.Sprint(condenseAbove),
		"{{max_matches}}", fmt.Sprint(mostMatches),
		"{{max_files}}", fmt.Sprint(mostFound),
	)
	return Spec{
		Name:        name,
		Description: limits.Replace(dialect(description, o.Native)),
		Parameters:  json.RawMessage(dialect(schema, o.Native)),
	}
}

// Specs returns the descriptions of the tools, in a fixed order.
func (s *Set) Specs() []Spec {
	specs := make([]Spec, len(s.tools))
	for i, t := range s.tools {
		specs[i] = t.Spec
	}
	return specs
}

// Run runs one call. A mistake of the model is a Result that explains it. An error means that the sandbox failed or
// ctx ended.
func (s *Set) Run(ctx context.Context, sb Sandbox, c Call) (Result, error) {
	i := slices.IndexFunc(s.tools, func(t tool) bool { return t.Name == c.Name })
	if i < 0 {
		return failure("Unknown tool %s. Available tools: %s.", quote(c.Name), Names(s.Specs())), nil
	}
	r, err := s.tools[i].run(ctx, sb, c)
	if told, ok := errors.AsType[*observation](err); ok {
		r = failure("%s", told.text)
	} else if err != nil {
		return Result{}, fmt.Errorf("run %s: %w", c.Name, err)
	}
	// A sandbox's error may contain any bytes, but a conversation is UTF-8.
	r.Output = clipEnd(strings.ToValidUTF8(r.Output, "\uFFFD"), maxChars+maxFrame)
	return r, nil
}

// Names returns the tools' names as a list in a sentence.
func Names(specs []Spec) string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// observation is an error that the model sees and can correct.
type observation struct{ text string }

func (o *observation) Error() string { return o.text }

func tell(format string, args ...any) error { return &observation{text: fmt.Sprintf(format, args...)} }

// failure returns a Result for a call that did not do what was asked.
func failure(format string, args ...any) Result {
	return Result{Output: "ERROR: " + fmt.Sprintf(format, args...), Failed: true}
}

//go:embed finish.md
var finishDescription string

//go:embed finish.json
var finishSchema string

// finish ends the rollout whatever its parameters are, because a model that calls it is done.
func finish(_ context.Context, _ Sandbox, c Call) (Result, error) {
	p := &params{args: c.Args, used: make(map[string]bool)}
	if command, ok := p.optional("command"); ok && !absent(command) && strings.TrimSpace(command) != "submit" {
		p.note("command is %s and was taken as submit.", quote(command))
	}
	answer, _ := p.optional("result")
	return Result{Output: "Submitted." + p.remarks("finish"), Finished: true, Answer: answer}, nil
}
