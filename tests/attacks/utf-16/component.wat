;; Wants its text passed as UTF-16.
(component
  (import "tunebox:method/run@0.2.0" (instance $run
    (export "log" (func (param "line" string)))))
  (core module $m (memory (export "memory") 1))
  (core instance $i (instantiate $m))
  (alias export $run "log" (func $log))
  (core func (canon lower (func $log) (memory $i "memory") string-encoding=utf16)))
