;; Wants an interface of a contract that does not exist.
(component
  (import "tunebox:method/escape@0.2.0" (instance)))
