package llmtest

import (
	"net/http"
	"strconv"
	"time"
)

// Status answers with a status code and an error in OpenAI's nested form.
func Status(code int, message string) Reply {
	return fault(func(w http.ResponseWriter, _ *http.Request, _ Request) {
		refuse(w, code, message, "")
	})
}

// Body answers with exactly this: status, content type and body.
func Body(code int, contentType, body string, header ...string) Reply {
	return fault(func(w http.ResponseWriter, _ *http.Request, _ Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})
}

// RateLimited fails with 429 and asks to wait, in seconds; without Retry-After when after is 0.
func RateLimited(after time.Duration) Reply {
	return fault(func(w http.ResponseWriter, _ *http.Request, _ Request) {
		if after > 0 {
			w.Header().Set("Retry-After", strconv.FormatFloat(after.Seconds(), 'f', -1, 64))
		}
		refuse(w, http.StatusTooManyRequests, "Rate limit reached for requests", "rate_limit_exceeded")
	})
}

// BadGateway fails as a proxy does: 502 and a page of HTML.
func BadGateway() Reply {
	return Body(http.StatusBadGateway, "text/html", "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"+
		"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n")
}

// Malformed answers with JSON that breaks off.
func Malformed() Reply {
	return Body(http.StatusOK, "application/json",
		`{"id":"chatcmpl-0","object":"chat.completion","choices":[{"index":0,"mess`)
}

// NoChoices answers with an empty list of choices.
func NoChoices() Reply {
	r := Text("")
	r.Edit = func(answer map[string]any) { answer["choices"] = []any{} }
	return r
}

// Disconnect breaks the connection in the middle of the answer that the reply would be.
func Disconnect(r Reply) Reply {
	return fault(func(w http.ResponseWriter, req *http.Request, body Request) {
		a := r.answer(body)
		if body.Stream {
			lines := a.events(body)
			stream(w, req, lines[:len(lines)/2])
		} else {
			whole := encode(a.whole(body))
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
			_, _ = w.Write(whole[:len(whole)/2])
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	})
}

// Hangup breaks the connection before anything is answered.
func Hangup() Reply {
	return fault(func(http.ResponseWriter, *http.Request, Request) { panic(http.ErrAbortHandler) })
}

// StreamError reports an error in the middle of a stream, or in place of an answer that is not streamed.
func StreamError(r Reply, code int, message string) Reply {
	return fault(func(w http.ResponseWriter, req *http.Request, body Request) {
		problem := map[string]any{"error": map[string]any{"message": message, "type": "InternalServerError", "code": code}}
		if !body.Stream {
			writeJSON(w, http.StatusOK, problem)
			return
		}
		lines := r.answer(body).events(body)
		stream(w, req, append(lines[:len(lines)/2:len(lines)/2], "data: "+string(encode(problem))+"\n\n", "data: [DONE]\n\n"))
	})
}

// Stall sends the first half of the answer's stream and then nothing until the client leaves; of an answer that is not
// streamed it sends nothing at all.
func Stall(r Reply) Reply {
	return fault(func(w http.ResponseWriter, req *http.Request, body Request) {
		if body.Stream {
			lines := r.answer(body).events(body)
			stream(w, req, lines[:len(lines)/2])
		}
		<-req.Context().Done()
	})
}

func fault(f func(http.ResponseWriter, *http.Request, Request)) Reply { return Reply{fault: f} }
