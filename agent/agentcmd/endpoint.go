package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"deepswe/agent/cli"
	"deepswe/agent/llm"
	"deepswe/env"
)

// CheckEndpoint looks at the model endpoint for doctor. An endpoint that nobody has set, and that is not where vLLM
// would be, is no failure: half of what deepswe does needs none.
func CheckEndpoint(ctx context.Context, w cli.World, baseURL, model string) []env.Finding {
	config, err := w.LoadConfig()
	if err != nil {
		return []env.Finding{{Check: "configuration", Status: env.Failed, Detail: err.Error(), Fix: "correct " + w.ConfigPath()}}
	}
	choice := w.ResolveModel(config, baseURL, model)
	client, err := llm.New(llm.Options{BaseURL: choice.BaseURL, APIKey: choice.APIKey, Model: choice.Model, MaxRetries: -1, Log: w.Logger()})
	if err != nil {
		return []env.Finding{{Check: "endpoint", Status: env.Failed, Detail: err.Error(), Fix: "set DEEPSWE_BASE_URL"}}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h, err := client.Check(ctx)
	if err != nil && len(h.Models) == 0 && choice.BaseURL == cli.DefaultBaseURL {
		return []env.Finding{{
			Check: "endpoint", Status: env.Skipped, Detail: "none is set, and none answers at " + cli.DefaultBaseURL,
			Fix: "export DEEPSWE_BASE_URL=http://HOST:PORT/v1",
		}}
	}
	return healthFindings(h, err)
}

func healthFindings(h llm.Health, err error) []env.Finding {
	endpoint := env.Finding{Check: "endpoint", Status: env.OK, Detail: fmt.Sprintf("%s serves %d models", h.Endpoint, len(h.Models))}
	if len(h.Models) == 0 && err != nil {
		endpoint.Status, endpoint.Detail, endpoint.Fix = env.Failed, unwrapped(err), "start the server, or set DEEPSWE_BASE_URL to where it is"
		return []env.Finding{endpoint}
	}
	model := env.Finding{Check: "model", Status: env.OK, Detail: h.Model.ID}
	if h.Model.ID == "" {
		model.Status, model.Fix = env.Failed, "set DEEPSWE_MODEL to one that the endpoint serves"
		model.Detail = unwrapped(err)
		return []env.Finding{endpoint, model}
	}
	if h.Model.Context > 0 {
		model.Detail += fmt.Sprintf(", context %d tokens", h.Model.Context)
	}
	findings := []env.Finding{endpoint, model}
	completion := env.Finding{Check: "completion", Status: env.OK, Detail: fmt.Sprintf("one token in %d ms", h.Latency.Milliseconds())}
	switch {
	case err != nil:
		completion.Status, completion.Detail, completion.Fix = env.Failed, unwrapped(err), "see the server's own log"
	case h.TokenIDs:
		completion.Detail += ", with token ids and logprobs: fit for training"
	default:
		completion.Detail += ", without token ids: fit for solving, not for training"
	}
	findings = append(findings, completion)
	for _, w := range h.Warnings {
		findings = append(findings, env.Finding{Check: "endpoint", Status: env.Warning, Detail: w})
	}
	return findings
}

// unwrapped is the innermost account of an error that says what to do: the client's own.
func unwrapped(err error) string {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.Error()
	}
	return err.Error()
}
