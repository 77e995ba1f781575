//go:build kubernetes1.34 || kubernetes1.35 || kubernetes1.36

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// validateCreate returns what the strategy refuses of a new object.
func validateCreate(ctx context.Context, object runtime.Object, strategy rest.RESTCreateStrategy) field.ErrorList {
	return strategy.Validate(ctx, object)
}

// validateUpdate returns what the strategy refuses of a changed object.
func validateUpdate(ctx context.Context, object, old runtime.Object, strategy rest.RESTUpdateStrategy) field.ErrorList {
	return strategy.ValidateUpdate(ctx, object, old)
}
