package trajectory

import (
	"bytes"
	"encoding/json"

	"deepswe/env/disk"
)

// Content is a message or a result: plain text, or, where Parts is not nil, a list of texts and pictures.
type Content struct {
	Text  string
	Parts []ContentPart
}

// The types of content parts. Audio came with ATIF v1.8; it is read, and never written here.
const (
	PartText  = "text"
	PartImage = "image"
	PartAudio = "audio"
)

// ContentPart is a text, or a reference to a picture or a sound that lies beside the trajectory.
type ContentPart struct {
	Type   string       `json:"type"`
	Text   *string      `json:"text,omitempty"`
	Source *MediaSource `json:"source,omitempty"`
}

// MediaSource says where a picture or a sound is. Path is a file's path or a URL.
type MediaSource struct {
	MediaType   string   `json:"media_type"`
	Path        string   `json:"path"`
	DurationSec *float64 `json:"duration_sec,omitempty"`
}

// Text makes plain content.
func Text(s string) Content { return Content{Text: s} }

// String returns the text of the content, with every other part as a mark in square brackets.
func (c Content) String() string {
	if c.Parts == nil {
		return c.Text
	}
	var b bytes.Buffer
	for _, p := range c.Parts {
		switch {
		case p.Text != nil:
			b.WriteString(*p.Text)
		case p.Source != nil:
			b.WriteString("[" + p.Type + ": " + p.Source.Path + "]")
		}
	}
	return b.String()
}

// MarshalJSON writes a string or an array.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Parts != nil {
		return disk.MarshalJSON(c.Parts)
	}
	return disk.MarshalJSON(c.Text)
}

// UnmarshalJSON reads a string or an array.
func (c *Content) UnmarshalJSON(data []byte) error {
	*c = Content{}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		c.Parts = []ContentPart{}
		return json.Unmarshal(data, &c.Parts)
	}
	return json.Unmarshal(data, &c.Text)
}
