package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"
)

func init() {
	register("histogram", histogram)
	register("bucket-table", bucketTable)
}

type histogramOptions struct {
	Type            string  `json:"type"`
	MaxValue        float64 `json:"max_value"`
	BucketSize      float64 `json:"bucket_size"`
	FirstBucketSize float64 `json:"first_bucket_size"`
	Ratio           float64 `json:"ratio"`
	Epsilon         float64 `json:"epsilon"`
}

func (o histogramOptions) build() (util.HistogramOptions, error) {
	switch o.Type {
	case "cpu", "memory":
		config := model.NewAggregationsConfig(
			model.DefaultMemoryAggregationInterval, model.DefaultMemoryAggregationIntervalCount,
			model.DefaultMemoryHistogramDecayHalfLife, model.DefaultCPUHistogramDecayHalfLife,
			model.DefaultOOMBumpUpRatio, model.DefaultOOMMinBumpUp,
		)
		if o.Type == "cpu" {
			return config.CPUHistogramOptions, nil
		}
		return config.MemoryHistogramOptions, nil
	case "linear":
		return util.NewLinearHistogramOptions(o.MaxValue, o.BucketSize, o.Epsilon)
	case "exponential":
		return util.NewExponentialHistogramOptions(o.MaxValue, o.FirstBucketSize, o.Ratio, o.Epsilon)
	}
	return nil, fmt.Errorf("unknown type of options %q", o.Type)
}

func bucketTable(data json.RawMessage) (any, error) {
	var in struct {
		Options histogramOptions `json:"options"`
		Find    []float64        `json:"find"`
	}
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	options, err := in.Options.build()
	if err != nil {
		return nil, err
	}
	type start struct {
		Bucket int `json:"bucket"`
		number
	}
	out := struct {
		NumBuckets int     `json:"num_buckets"`
		Starts     []start `json:"starts"`
		Find       []int   `json:"find"`
	}{NumBuckets: options.NumBuckets()}
	for bucket := range options.NumBuckets() {
		out.Starts = append(out.Starts, start{bucket, exact(options.GetBucketStart(bucket))})
	}
	for _, value := range in.Find {
		out.Find = append(out.Find, options.FindBucket(value))
	}
	return out, nil
}

type histogramInput struct {
	Options    histogramOptions `json:"options"`
	Histograms map[string]struct {
		HalfLifeS *float64          `json:"half_life_s"`
		Options   *histogramOptions `json:"options"`
	} `json:"histograms"`
	Ops []histogramOp `json:"ops"`
}

type histogramOp struct {
	Op         string                        `json:"op"`
	H          string                        `json:"h"`
	Other      string                        `json:"other"`
	Value      float64                       `json:"value"`
	Weight     float64                       `json:"weight"`
	Time       time.Time                     `json:"time"`
	P          float64                       `json:"p"`
	Bucket     int                           `json:"bucket"`
	Checkpoint *vpatypes.HistogramCheckpoint `json:"checkpoint"`
}

func histogram(data json.RawMessage) (any, error) {
	var in histogramInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	shared, err := in.Options.build()
	if err != nil {
		return map[string]any{"options_error": err.Error()}, nil
	}
	histograms := map[string]util.Histogram{}
	for name, each := range in.Histograms {
		options := shared
		if each.Options != nil {
			if options, err = each.Options.build(); err != nil {
				return nil, err
			}
		}
		if each.HalfLifeS == nil {
			histograms[name] = util.NewHistogram(options)
		} else {
			histograms[name] = util.NewDecayingHistogram(options, seconds(*each.HalfLifeS))
		}
	}
	results := []any{}
	for _, op := range in.Ops {
		result, panicked := op.run(shared, histograms)
		results = append(results, result)
		if panicked {
			break
		}
	}
	return map[string]any{"results": results}, nil
}

func (op histogramOp) run(shared util.HistogramOptions, histograms map[string]util.Histogram) (result any, panicked bool) {
	defer func() {
		if cause := recover(); cause != nil {
			result, panicked = map[string]any{"panic": fmt.Sprint(cause)}, true
		}
	}()
	h, other := histograms[op.H], histograms[op.Other]
	switch op.Op {
	case "find_bucket":
		return shared.FindBucket(op.Value), false
	case "bucket_start":
		return exact(shared.GetBucketStart(op.Bucket)), false
	case "num_buckets":
		return shared.NumBuckets(), false
	case "add_sample":
		h.AddSample(op.Value, op.Weight, op.Time)
		return nil, false
	case "subtract_sample":
		h.SubtractSample(op.Value, op.Weight, op.Time)
		return nil, false
	case "merge":
		h.Merge(other)
		return nil, false
	case "percentile":
		return exact(h.Percentile(op.P)), false
	case "is_empty":
		return h.IsEmpty(), false
	case "equals":
		return h.Equals(other), false
	case "string":
		return h.String(), false
	case "state":
		return histogramState(h), false
	case "save_to_checkpoint":
		checkpoint, err := h.SaveToChekpoint()
		if err != nil {
			return map[string]any{"error": err.Error()}, false
		}
		return savedHistogram(checkpoint), false
	case "load_from_checkpoint":
		return map[string]any{"error": errorText(h.LoadFromCheckpoint(op.Checkpoint))}, false
	case "transfer_checkpoint":
		return map[string]any{"error": errorText(transfer(h, other))}, false
	}
	panic("unknown op " + op.Op)
}

func transfer(from, to util.Histogram) error {
	checkpoint, err := from.SaveToChekpoint()
	if err != nil {
		return err
	}
	data, err := json.Marshal(checkpoint)
	if err != nil {
		return err
	}
	var loaded vpatypes.HistogramCheckpoint
	if err := json.Unmarshal(data, &loaded); err != nil {
		return err
	}
	return to.LoadFromCheckpoint(&loaded)
}

func errorText(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}

func savedHistogram(checkpoint *vpatypes.HistogramCheckpoint) any {
	weights := checkpoint.BucketWeights
	if weights == nil {
		weights = map[int]uint32{}
	}
	return map[string]any{
		"reference_time": checkpoint.ReferenceTimestamp.UTC().Format(time.RFC3339Nano),
		"bucket_weights": weights, "total_weight": float(checkpoint.TotalWeight), "total_weight_hex": hex(checkpoint.TotalWeight),
		"json": printedHistogram(*checkpoint),
	}
}

// printedHistogram is a checkpoint as the API prints it, with a total weight that is a float.
func printedHistogram(checkpoint vpatypes.HistogramCheckpoint) map[string]any {
	out := map[string]any{"referenceTimestamp": checkpoint.ReferenceTimestamp}
	if len(checkpoint.BucketWeights) > 0 {
		out["bucketWeights"] = checkpoint.BucketWeights
	}
	if checkpoint.TotalWeight != 0 {
		out["totalWeight"] = float(checkpoint.TotalWeight)
	}
	return out
}

// histogramState reads what a histogram keeps to itself.
func histogramState(h util.Histogram) any {
	var reference time.Time
	if halfLife(h) {
		reference = *private[time.Time](h, "referenceTimestamp")
	}
	weights := map[string]any{}
	for bucket, weight := range *private[[]float64](h, "bucketWeight") {
		if weight != 0 {
			weights[strconv.Itoa(bucket)] = float(weight)
		}
	}
	total := *private[float64](h, "totalWeight")
	return map[string]any{
		"min_bucket": *private[int](h, "minBucket"), "max_bucket": *private[int](h, "maxBucket"),
		"total_weight": float(total), "total_weight_hex": hex(total), "weights": weights,
		"reference_time": reference.UTC().Format(time.RFC3339Nano),
	}
}

// halfLife says whether a histogram decays.
func halfLife(h util.Histogram) bool {
	return fmt.Sprintf("%T", h) == "*util.decayingHistogram"
}
