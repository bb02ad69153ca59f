package dataset

import "strings"

// asRoot are git's settings for commands that run as another user than the one who owns the repository.
const asRoot = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'; "

// keepUntracked makes git ignore the files that it does not know by now: caches, environments and scripts that belong
// to the image. A patch must not contain them, and cleaning the tree must not remove them.
const keepUntracked = asRoot +
	"if git rev-parse --git-dir >/dev/null 2>&1; then " +
	"git -c core.quotePath=false ls-files --others --exclude-standard --directory | " +
	"sed 's|^|/|' >>\"$(git rev-parse --git-dir)/info/exclude\"; fi"

// heredoc returns the end of a command line that feeds it text, byte for byte.
func heredoc(text string) string {
	end := "END_OF_INPUT"
	for strings.Contains(text, end) {
		end += "_"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return "<<'" + end + "'\n" + text + end
}
