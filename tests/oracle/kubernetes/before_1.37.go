//go:build kubernetes1.35 || kubernetes1.36

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// optionsOfMinor are options that not every minor version has.
func optionsOfMinor(factory *staticInformers, _ *internalcache.Snapshot) []frameworkruntime.Option {
	csi := nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())
	return []frameworkruntime.Option{frameworkruntime.WithSharedCSIManager(csi)}
}

// validateCreate returns what the strategy refuses of a new object.
func validateCreate(ctx context.Context, object runtime.Object, strategy rest.RESTCreateStrategy) field.ErrorList {
	return strategy.Validate(ctx, object)
}

// validateUpdate returns what the strategy refuses of a changed object.
func validateUpdate(ctx context.Context, object, old runtime.Object, strategy rest.RESTUpdateStrategy) field.ErrorList {
	return strategy.ValidateUpdate(ctx, object, old)
}
