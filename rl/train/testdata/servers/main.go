// Command servers takes the place of SkyRL and vLLM in the pods or steps of a recipe: the fakes of trainertest, at the
// addresses and under the commands that the recipe names. As SkyRL, it also serves the replicas of vLLM, which share
// its policy; as vLLM, it forwards requests to SkyRL; and as wget, it only checks a status.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"deepswe/agent/chatml"
	"deepswe/agent/tokenizer"
	"deepswe/rl/trainer/embedded"
	"deepswe/rl/trainer/trainertest"
)

// modelDir has the model's files, and speech.json. It is the image's, unless a variable names another.
func modelDir() string { return cmp.Or(os.Getenv("STAND_IN_MODEL"), "/model") }

// process is the testing.TB of a program that ends with its pod.
type process struct{ testing.TB }

func (process) Helper()           {}
func (process) Cleanup(func())    {}
func (process) TempDir() string   { return must(os.MkdirTemp("", "")) }
func (process) Fatal(args ...any) { log.Fatal(args...) }

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() {
	switch os.Args[1] {
	case "vllm":
		reportShare()
		port := portOf(os.Args)
		policy := httputil.NewSingleHostReverseProxy(ownPolicy(port))
		log.Fatal(http.ListenAndServe(fmt.Sprint(":", port), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A reply that begins before the end of the request was read would break the connection.
			_ = http.NewResponseController(w).EnableFullDuplex()
			policy.ServeHTTP(w, r)
		})))
	case "wget":
		if r := must(http.Get(os.Args[len(os.Args)-1])); r.StatusCode != http.StatusOK {
			log.Fatal(r.Status)
		}
		return
	}
	flags := flag.NewFlagSet("skyrl", flag.ExitOnError)
	host := flags.String("host", "", "")
	port := flags.String("port", "", "")
	flags.String("backend", "", "")
	checkpoints := flags.String("checkpoints-base", "", "")
	backend := flags.String("backend-config", "", "")
	base := flags.String("base-model", "", "")
	_ = flags.Parse(os.Args[4:]) // skyrl -m skyrl.tinker.api; it exits on errors
	var settings struct {
		LoRASync string `json:"trainer.policy.model.lora.lora_sync_path"`
	}
	must(0, json.Unmarshal([]byte(*backend), &settings))
	cached(*base)
	must(0, os.MkdirAll(*checkpoints, 0o755))
	reportShare()
	log.Fatal(http.ListenAndServe(net.JoinHostPort(*host, *port), skyrl(*base, settings.LoRASync, *checkpoints)))
}

// reportShare says what a server may use of its machine.
func reportShare() {
	log.Printf("%d processors, GPUs %s", runtime.NumCPU(), os.Getenv("CUDA_VISIBLE_DEVICES"))
}

// portOf returns the port that vLLM's arguments name, or its default.
func portOf(args []string) int {
	if i := slices.Index(args, "--port"); i >= 0 {
		return must(strconv.Atoi(args[i+1]))
	}
	return 8000
}

// ownPolicy is where SkyRL serves a vLLM's policy. Under Slurm, whose ports are others, all are on one node.
func ownPolicy(port int) *url.URL {
	host := "skyrl"
	if port >= 8100 {
		host = "127.0.0.1"
	}
	return must(url.Parse(fmt.Sprintf("http://%s:8000/vllm/%s:%d", host, must(os.Hostname()), port)))
}

// cached puts the model's files where Hugging Face's cache has them, as loading it does.
func cached(model string) {
	repo := filepath.Join(os.Getenv("HF_HOME"), "hub", "models--"+strings.ReplaceAll(model, "/", "--"))
	snapshot := filepath.Join(repo, "snapshots", "1")
	for _, dir := range []string{filepath.Join(repo, "refs"), snapshot} {
		must(0, os.MkdirAll(dir, 0o755))
	}
	must(0, os.WriteFile(filepath.Join(repo, "refs", "main"), []byte("1"), 0o644))
	for _, file := range must(os.ReadDir(modelDir())) {
		data := must(os.ReadFile(filepath.Join(modelDir(), file.Name())))
		must(0, os.WriteFile(filepath.Join(snapshot, file.Name()), data, 0o644))
	}
}

// served is the codec of vLLM, which has texts for tokens as well.
type served struct {
	*chatml.Codec
	*tokenizer.Tokenizer
}

// skyrl serves the trainer, each replica below its name, and counts of the replies that each adapter has given.
func skyrl(base, loraSync, checkpoints string) http.Handler {
	var speech trainertest.Speech
	must(0, json.Unmarshal(must(os.ReadFile(filepath.Join(modelDir(), "speech.json"))), &speech))
	words := strings.Split("abcdefgh", "")[:len(speech.Words)]
	trainer := trainertest.New(process{}, trainertest.Options{Base: base, Speech: &speech, Sums: true, Dedups: true,
		Wire: trainertest.OnlyProtobuf, LoRASync: loraSync, Whole: loraSync == "", Dir: checkpoints, MaxRank: 64,
		Language: embedded.Language{Vocabulary: words, Window: 1, Reply: 2}})
	tokens := must(tokenizer.Load(filepath.Join(modelDir(), "tokenizer.json")))
	codec := served{must(chatml.NewCodec(tokens, must(chatml.Named(chatml.Qwen3)))), tokens}
	mux := http.NewServeMux()
	mux.Handle("/", httputil.NewSingleHostReverseProxy(must(url.Parse(trainer.URL()))))
	var making sync.Mutex
	vllms := map[string]*trainertest.VLLM{} // each is made when it is asked first
	mux.HandleFunc("/vllm/{name}/", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		making.Lock()
		v := vllms[name]
		if v == nil {
			v = trainertest.NewVLLM(process{}, trainer, codec)
			vllms[name] = v
		}
		making.Unlock()
		http.StripPrefix("/vllm/"+name, v).ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /vllm/{name}/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /served", func(w http.ResponseWriter, _ *http.Request) {
		making.Lock()
		defer making.Unlock()
		served := map[string]map[string]int{}
		for name, v := range vllms {
			served[name] = v.Served()
		}
		_ = json.NewEncoder(w).Encode(served)
	})
	return mux
}
