package main

// Defaulting, conversion and validation of autoscalers, with the registry strategy that the API server uses.

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"kscale.dev/oracle/harness"
)

func init() {
	harness.Register("hpa-validate", hpaValidate)
}

type validateInput struct {
	Object      json.RawMessage `json:"object"`
	OldObject   json.RawMessage `json:"old_object"`
	Subresource string          `json:"subresource"`
	Gates       map[string]bool `json:"gates"`
	Version     string          `json:"kubernetes_version"`
}

type validateOutput struct {
	DecodeError  *string       `json:"decode_error"`
	Errors       []string      `json:"errors"`
	ErrorDetails []errorDetail `json:"error_details"`
	Defaulted    any           `json:"defaulted"`
	AsV1         any           `json:"as_v1"`
}

type errorDetail struct {
	Type   string `json:"type"`
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func hpaValidate(data json.RawMessage) (any, error) {
	var in validateInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	gates := gatesOf(in.Gates, in.Version, "HPAScaleToZero", "HPAGeneration")
	out := validateOutput{Errors: []string{}, ErrorDetails: []errorDetail{}}
	return &out, withGates(gates, func() error { return out.fill(in) })
}

func decodeHPA(data []byte) (*autoscaling.HorizontalPodAutoscaler, error) {
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(autoscaling.SchemeGroupVersion), data)
	if err != nil {
		return nil, err
	}
	hpa, ok := object.(*autoscaling.HorizontalPodAutoscaler)
	if !ok {
		return nil, errors.New("the object is no HorizontalPodAutoscaler")
	}
	return hpa, nil
}

func (o *validateOutput) fill(in validateInput) error {
	hpa, err := decodeHPA(in.Object)
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), " in scheme ")
		o.DecodeError = &text
		return nil
	}
	var version struct {
		APIVersion string          `json:"apiVersion"`
		Status     json.RawMessage `json:"status"`
	}
	if err := unmarshal(in.Object, &version); err != nil {
		return err
	}
	groupVersion, err := schema.ParseGroupVersion(version.APIVersion)
	if err != nil {
		return err
	}
	ctx := genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(context.Background(), hpa.Namespace), &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: groupVersion.Group, APIVersion: groupVersion.Version,
		Resource: "horizontalpodautoscalers", Subresource: in.Subresource,
	})
	stored := hpa.DeepCopy()
	var list field.ErrorList
	if in.OldObject == nil {
		list = validateCreate(ctx, hpa, horizontalpodautoscaler.Strategy)
	} else {
		old, err := decodeHPA(in.OldObject)
		if err != nil {
			return err
		}
		var strategy rest.RESTUpdateStrategy = horizontalpodautoscaler.Strategy
		if in.Subresource == "status" {
			strategy = horizontalpodautoscaler.StatusStrategy
		}
		if hpa.ResourceVersion == "" {
			hpa.ResourceVersion = old.ResourceVersion // the store's part of an unconditional update
		}
		// It prepares the object, and validates it; its error has no list.
		_ = rest.BeforeUpdate(strategy, ctx, hpa, old)
		list = validateUpdate(ctx, hpa, old, strategy)
	}
	o.setErrors(list)
	if len(list) > 0 || in.Subresource == "status" {
		return nil
	}
	return o.setServed(stored, version.Status != nil)
}

func (o *validateOutput) setErrors(list field.ErrorList) {
	sortMetricSources(list)
	for _, each := range list {
		if text := each.Error(); !slices.Contains(o.Errors, text) {
			o.Errors = append(o.Errors, text)
			o.ErrorDetails = append(o.ErrorDetails, errorDetail{string(each.Type), each.Field, each.Detail})
		}
	}
}

// sortMetricSources orders runs of errors that upstream takes from a Go map, one for each source of a metric too many.
func sortMetricSources(list field.ErrorList) {
	metric := func(i int) string {
		if i >= len(list) || list[i].Detail != "must populate the given metric source only" {
			return ""
		}
		return list[i].Field[:strings.LastIndex(list[i].Field, ".")]
	}
	for start := 0; start < len(list); {
		end := start + 1
		for metric(start) != "" && metric(end) == metric(start) {
			end++
		}
		slices.SortStableFunc(list[start:end], func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
		start = end
	}
}

// setServed sets what the API server serves after it stored the object.
func (o *validateOutput) setServed(hpa *autoscaling.HorizontalPodAutoscaler, withStatus bool) error {
	data, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(autoscalingv2.SchemeGroupVersion), hpa)
	if err != nil {
		return err
	}
	if hpa, err = decodeHPA(data); err != nil {
		return err
	}
	for version, into := range map[schema.GroupVersion]*any{
		autoscalingv2.SchemeGroupVersion: &o.Defaulted, autoscalingv1.SchemeGroupVersion: &o.AsV1,
	} {
		data, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(version), hpa)
		if err != nil {
			return err
		}
		var document map[string]any
		if err := unmarshal(data, &document); err != nil {
			return err
		}
		if !withStatus {
			delete(document, "status")
		}
		*into = document
	}
	return nil
}
