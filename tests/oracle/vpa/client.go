package main

import (
	"io"
	"net/http"
	"strings"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// kubeClient answers what upstream asks of the API server: it serves the calls on pods, and nothing else.
type kubeClient struct {
	kubernetes.Interface
	pods podsClient
}

func (c *kubeClient) CoreV1() corev1client.CoreV1Interface { return coreClient{c: c} }

// CoordinationV1 serves the lease of the admission controller's status, which no case checks.
func (c *kubeClient) CoordinationV1() coordinationclient.CoordinationV1Interface {
	return leaseClient{}
}

type leaseClient struct {
	coordinationclient.CoordinationV1Interface
}

func (leaseClient) Leases(string) coordinationclient.LeaseInterface { return nil }

type coreClient struct {
	corev1client.CoreV1Interface
	c *kubeClient
}

func (coreClient) RESTClient() rest.Interface { return nil }

func (c coreClient) Pods(namespace string) corev1client.PodInterface {
	pods := c.c.pods
	pods.namespace = namespace
	return pods
}

// discovery is an API server that serves no group: kinds that are not well known have no mapping.
type discovery struct{}

func (discovery) RoundTrip(request *http.Request) (*http.Response, error) {
	body := `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
	if request.URL.Path == "/api" {
		body = `{"kind":"APIVersions","versions":[]}`
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

var discoveryConfig = &rest.Config{Host: "http://discovery.invalid", Transport: discovery{}}

// fetchers find the selector of a target and the controller of a pod in the stores of the factory. The stop channel ends
// the goroutines that they start.
func fetchers(client kubernetes.Interface, f *factory, stop <-chan struct{}) (target.VpaTargetSelectorFetcher, controllerfetcher.ControllerFetcher) {
	const day = 24 * 3600e9
	return target.NewVpaTargetSelectorFetcher(discoveryConfig, client, f, stop),
		controllerfetcher.NewControllerFetcher(discoveryConfig, client, f, day, day, 0, stop)
}
