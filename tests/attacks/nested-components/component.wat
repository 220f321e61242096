;; Hides its parts deep inside one another.
(component (component (component (component (component)))))
