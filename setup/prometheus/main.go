// The receiver of remote write 2.0 for tests: the handler, the database and the queries of Prometheus. Debian's Prometheus reads 1.0 only.
//
// prometheus ADDRESS DIRECTORY: takes messages at /api/v1/write, answers /api/v1/query, and shows counters of the handler at /metrics.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
)

type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: prometheus ADDRESS DIRECTORY")
	}
	logger, registry := slog.New(slog.NewTextHandler(os.Stderr, nil)), prometheus.NewRegistry()
	db, err := tsdb.Open(os.Args[2], logger, registry, tsdb.DefaultOptions(), nil)
	if err != nil {
		log.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{Logger: logger, MaxSamples: 50_000_000, Timeout: time.Minute})
	types := remoteapi.MessageTypes{remoteapi.WriteV2MessageType}
	http.Handle("POST /api/v1/write", remote.NewWriteHandler(logger, registry, db, types, false, true))
	http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	http.HandleFunc("GET /api/v1/query", func(writer http.ResponseWriter, request *http.Request) {
		found, err := query(request.Context(), engine, db, request.FormValue("query"))
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		answer := map[string]any{"data": map[string]any{"result": found}}
		if err := json.NewEncoder(writer).Encode(answer); err != nil {
			log.Print(err)
		}
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}

func query(context context.Context, engine *promql.Engine, db *tsdb.DB, text string) ([]sample, error) {
	now := time.Now()
	query, err := engine.NewInstantQuery(context, db, nil, text, now)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	vector, err := query.Exec(context).Vector()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	found := []sample{}
	for _, point := range vector {
		number := strconv.FormatFloat(point.F, 'f', -1, 64)
		found = append(found, sample{point.Metric.Map(), [2]any{now.Unix(), number}})
	}
	return found, nil
}
