package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

type quantityQuestion struct {
	Text  *string  `json:"text"`
	JSON  *string  `json:"json"`
	Op    string   `json:"op"`
	A     string   `json:"a"`
	B     string   `json:"b"`
	Items []string `json:"items"`
}

func init() {
	register("quantity", answerQuantity)
}

func answerQuantity(input json.RawMessage) (any, error) {
	var question quantityQuestion
	if err := decodeStrictly(input, &question); err != nil {
		return nil, err
	}
	switch {
	case question.Text != nil:
		return describeParsed(resource.ParseQuantity(*question.Text))
	case question.JSON != nil:
		var quantity resource.Quantity
		err := json.Unmarshal([]byte(*question.JSON), &quantity)
		return describeParsed(quantity, err)
	case question.Op == "sum":
		var sum resource.Quantity
		for _, item := range question.Items {
			quantity, err := resource.ParseQuantity(item)
			if err != nil {
				return refusal(err), nil
			}
			sum.Add(quantity)
		}
		return describeParsed(sum, nil)
	}
	a, err := resource.ParseQuantity(question.A)
	if err != nil {
		return refusal(err), nil
	}
	if question.Op == "neg" {
		a.Neg()
		return describeParsed(a, nil)
	}
	b, err := resource.ParseQuantity(question.B)
	if err != nil {
		return refusal(err), nil
	}
	switch question.Op {
	case "add":
		a.Add(b)
	case "sub":
		a.Sub(b)
	case "cmp":
		return map[string]any{"error": nil, "cmp": a.Cmp(b), "equal": a.Equal(b)}, nil
	default:
		return nil, fmt.Errorf("unknown operation %q", question.Op)
	}
	return describeParsed(a, nil)
}

func refusal(err error) map[string]any {
	return map[string]any{"error": err.Error()}
}

// describeParsed returns everything that a quantity says of itself. Each method gets a copy: some of them change the
// form in which the number is held.
func describeParsed(quantity resource.Quantity, err error) (any, error) {
	if err != nil {
		return refusal(err), nil
	}
	of := func() *resource.Quantity {
		same := quantity.DeepCopy()
		return &same
	}
	described := map[string]any{
		"error":             nil,
		"value":             of().Value(),
		"milli_value":       of().MilliValue(),
		"sign":              of().Sign(),
		"is_zero":           of().IsZero(),
		"format":            string(quantity.Format),
		"approximate_float": finite(of().AsApproximateFloat64()),
		"canonical":         of().String(),
		"decimal":           of().AsDec().String(),
		"as_int64":          nil,
	}
	if value, ok := of().AsInt64(); ok {
		described["as_int64"] = value
	}
	return described, nil
}

// finite writes infinities as text, which JSON numbers cannot express, and everything else so that no reader takes it
// for an integer.
func finite(value float64) any {
	switch {
	case math.IsInf(value, 1):
		return "+Inf"
	case math.IsInf(value, -1):
		return "-Inf"
	}
	return json.RawMessage(strconv.FormatFloat(value, 'e', -1, 64))
}
