package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestContext(t *testing.T) {
	t.Parallel()
	for text, tc := range map[string]struct {
		several bool
		want    []int
		says    string
	}{
		"":                  {want: nil},
		"65536":             {want: []int{65536}},
		"64k":               {want: []int{65536}},
		"0":                 {want: []int{0}},
		"128k,16K, 32768":   {several: true, want: []int{16384, 32768, 131072}},
		"16k,32k":           {says: "takes one context length"},
		"16k,16384":         {several: true, says: "twice"},
		"0,16k":             {several: true, says: "does not go with"},
		"-1":                {says: `invalid number of tokens "-1" (for example 65536, or 64k)`},
		"16k,":              {several: true, says: `invalid number of tokens ""`},
		"many":              {says: "invalid number of tokens"},
		"9999999999999999k": {says: "invalid number of tokens"},
	} {
		o := ModelFlags{SeveralContexts: tc.several}
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error { return nil }}
		o.Add(cmd)
		if got := cmd.Flags().Lookup("context").DefValue; got != "65536" {
			t.Errorf("the default is %s", got)
		}
		args := []string{"--context", text}
		if text == "" {
			args = nil
		}
		err := cmd.ParseFlags(args)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q: %v, want %q", text, err, tc.says)
			}
			continue
		}
		largest := 65536
		if len(tc.want) > 0 {
			largest = tc.want[len(tc.want)-1]
		}
		if err != nil || !slices.Equal(o.Contexts, tc.want) || o.Context != largest {
			t.Errorf("%q: %v, %d, %v", text, o.Contexts, o.Context, err)
		}
		// A resumed run sets the flag to the value in the manifest.
		again := ModelFlags{SeveralContexts: tc.several}
		other := &cobra.Command{}
		again.Add(other)
		if err := other.Flags().Set("context", cmd.Flags().Lookup("context").Value.String()); err != nil || again.Context != largest {
			t.Errorf("%q again: %d, %v", text, again.Context, err)
		}
	}
}
