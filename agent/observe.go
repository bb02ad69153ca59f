package agent

import (
	"fmt"
	"strings"

	"deepswe/agent/trajectory"
)

// Messages to a model whose reply could not be run. Each says what happened and what to write instead.
const (
	callForm = `<function=NAME>
<parameter=KEY>VALUE</parameter>
</function>`

	adviceNoCall = `Your response has no function call, so nothing was run. ` +
		`Every response must end with exactly one function call in this form, with nothing after it:

` + callForm + `

Do not ask for human help: decide for yourself and continue. When the work is done, call finish.`

	adviceNoNativeCall = `Your response has no tool call, so nothing was run. ` +
		`Every response must call at least one of the available tools. ` +
		`Do not ask for human help: decide for yourself and continue. When the work is done, call finish.`

	adviceEmpty = `Your response was empty, so nothing was run. ` +
		`Briefly state your next step, then make one function call.`

	adviceUnclosed = `Your response opens a <think> block and never closes it, so no function call in it was run. ` +
		`Think more briefly, close the block with </think>, then make one function call.`

	adviceInThought = `Your function call is inside a <think> block, so it was not run. ` +
		`Close the block with </think>, then make the call.`

	adviceTruncated = `Your response was truncated at the length limit before a function call was complete, ` +
		`so nothing was run. Be more concise: think in fewer words, and write large files in several steps.`

	adviceMalformed = `The function call in your response could not be parsed, so nothing was run: %s. ` +
		`Write it again in exactly this form, with every tag closed:

` + callForm

	adviceMoreCalls = `Only the first function call in your response was run (%d ignored). Make one call per response.`

	adviceArguments = `The arguments of the %s call could not be parsed, so it was not run: %s. ` +
		`Send them again as one JSON object.`

	adviceTooMany = `This call was not run: at most %d calls per response are run. Make it again if you still need it.`

	adviceUnknown = `Unknown tool %q, so nothing was run. Available tools: %s.`

	adviceDeclined = `This call was not run. The user says: `

	adviceStopped = `stop.`

	adviceTooEarly = `This call was not run because an earlier call of the same response failed. ` +
		`Look at its result, and call finish again when the work is done.`

	adviceFurther = `The session continues, with your changes in place. Further instruction from the user:

`

	adviceChanged = `From now on, the tool %s works like this:

`

	adviceTooLate = `This call was not run because finish was called before it.`
)

// adviceRepeating warns a model that repeats itself.
func adviceRepeating(times, length int) string {
	what := "made the same call with the same result"
	if length > 1 {
		what = fmt.Sprintf("repeated the same sequence of %d calls with the same results", length)
	}
	return fmt.Sprintf("\nYou have %s %d times in a row. Try a different approach, or call finish if the work is done.",
		what, times)
}

// IsFurther reports whether a message of a trajectory brings a further instruction of the user.
func IsFurther(m Message) bool { return strings.HasPrefix(m.Content, adviceFurther) }

// FurtherText is the instruction that such a message brings, without the steps that remain.
func FurtherText(m Message) string {
	text, _, _ := strings.Cut(strings.TrimPrefix(m.Content, adviceFurther), "\nSteps Remaining: ")
	return text
}

// observeResults returns the answer to a reply, as one body for each action or one for a problem, and whether another
// reply still fits into the context afterwards. It adds reminders of the remaining budget only if the rollout
// continues.
func (r *rollout) observeResults(
	reading Reading, results []callResult, warning string, continues bool,
) ([]string, bool) {
	bodies := []string{reading.Advice}
	if reading.Problem == "" {
		bodies = make([]string, len(results))
		for i, c := range results {
			bodies[i] = c.observation(r.format)
		}
	}
	for i, b := range bodies {
		bodies[i] = valid(b)
	}
	tail := warning
	if reading.Note != "" {
		tail = "\n" + reading.Note + tail
	}
	fits := true
	if continues {
		if warning != "" {
			r.emit(Event{Kind: EventNotice, Text: strings.TrimSpace(warning)})
		}
		if bodies, fits = r.fit(bodies, tail); fits {
			tail += r.reminder(bodies, tail)
		}
	}
	bodies[len(bodies)-1] += tail
	return bodies, fits
}

// observation formats a result like the reference agent, because models were trained on its format: a command's
// exit code, then a heading with the tool's name, then the output.
func (c callResult) observation(f Format) string {
	if !c.action.runs() {
		return c.action.Refusal
	}
	output := c.result.Output
	heading := "Execution output of [" + c.action.Call.Name + "]:\n"
	code := c.result.ExitCode
	if code == nil {
		return heading + output
	}
	// The tool's output also starts with the exit code, which is not repeated.
	if first, rest, _ := strings.Cut(output, "\n"); strings.HasPrefix(first, "Exit code: ") {
		output = rest
	}
	switch {
	case c.result.TimedOut:
		return "Exit code: -1\n" + heading + output
	case *code == 0:
		return "Exit code: 0\n" + heading + output
	}
	words := "Exit code: %d\n"
	if f.Name() == trajectory.FormatXML {
		words = "Exit code: Error: Exit code %d\n" // the reference agent's words, which models were trained on
	}
	return fmt.Sprintf(words, *code) + heading + output
}

// valid replaces invalid UTF-8, which the server would otherwise replace in its own way.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

const (
	// smallestBody is the smallest part of a result that is worth showing, in bytes.
	smallestBody = 400
	// noteRoom is more than reminders take, in bytes.
	noteRoom = 512
)

// fit shortens bodies that do not fit into the context. It returns false if too little would be left to be useful.
func (r *rollout) fit(bodies []string, tail string) ([]string, bool) {
	room, bounded := r.budget.room()
	if !bounded {
		return bodies, true
	}
	room -= len(tail) + noteRoom + len(bodies)*messageOverhead
	total := 0
	for _, b := range bodies {
		total += len(b)
	}
	if total <= room {
		return bodies, true
	}
	share := room / len(bodies)
	if share < smallestBody {
		if !r.compacting() {
			return bodies, false
		}
		share = smallestBody // compaction makes room before the next step
	}
	short := make([]string, len(bodies))
	for i, b := range bodies {
		short[i] = shorten(b, share)
	}
	return short, true
}

// shorten keeps the start and the end of a text, in at most limit bytes.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = "\n[… %d bytes omitted: the context is nearly full …]\n"
	keep := max(limit-len(mark)-10, 0) / 2
	head := strings.ToValidUTF8(s[:keep], "")
	tail := strings.ToValidUTF8(s[len(s)-keep:], "")
	return head + fmt.Sprintf(mark, len(s)-len(head)-len(tail)) + tail
}

// reminder says how much budget is left after the given bodies. It becomes part of the latest observation and never
// changes afterwards, so that each prompt starts with the previous one.
func (r *rollout) reminder(bodies []string, tail string) string {
	text := ""
	b := r.budget
	for _, body := range bodies {
		b.pending += messageOverhead + len(body)
	}
	b.pending += len(tail)
	if b.nearlyFull() {
		text = fmt.Sprintf("\nThe context is nearly full (about %d of %d tokens). Complete your change and call finish now.",
			b.prompt(), b.context)
		r.emit(Event{Kind: EventNotice, Text: strings.TrimSpace(text)})
	}
	if left := r.stepsLeft(); left > 0 {
		text += stepsRemaining(left)
	}
	return text
}

// stepsLeft returns how many replies the limit still allows; it is meaningless without a limit.
func (r *rollout) stepsLeft() int { return r.limits.Steps - (r.out.Steps - r.before) }

// stepsRemaining returns the reference agent's line with the number of remaining replies.
func stepsRemaining(left int) string {
	line := fmt.Sprintf("\nSteps Remaining: %d", left)
	if left == 1 {
		line += "\nThis is your last step: call finish now. The changes that you have made are kept."
	}
	return line
}
